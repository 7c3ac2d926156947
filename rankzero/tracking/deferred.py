"""A number that is still on its way from a device."""

from __future__ import annotations

import sys
from typing import Any


class Deferred:
    """One element of a tensor on a device, being copied to the host without waiting for it.

    The copy is queued on the device's current stream, after the work that makes the value and
    before anything that is queued later, so that changing the tensor in place afterwards does not
    change what is read. ``read`` is for another thread than the training loop's.

    Args:
        tensor: One element, on a device other than the CPU.
        events: Module of the device that has ``Event`` (torch.cuda, torch.xpu, torch.mps ...); None
            where it has no events: then ``read`` waits for the copy.
    """

    __slots__ = ("_event", "_host")

    def __init__(self, tensor: Any, events: Any) -> None:
        detached = tensor.detach()
        if events is None:
            self._host = detached.clone()
            self._event = None
            return
        self._host = detached.to("cpu", non_blocking=True)
        self._event = events.Event()
        self._event.record()

    def ready(self) -> bool:
        """Whether ``read`` returns without waiting."""
        return self._event is None or bool(self._event.query())

    def read(self) -> float | int | bool:
        """Return the number. Call it once ``ready``."""
        item: float | int | bool = self._host.item()
        return item


def snapshot(tensor: Any) -> Deferred:
    """Start copying a one-element device tensor to the host; returns at once."""
    torch = sys.modules["torch"]
    events = getattr(torch, tensor.device.type, None)
    return Deferred(tensor, events if hasattr(events, "Event") else None)
