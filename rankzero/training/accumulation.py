"""Gradient accumulation: which micro-batch ends a window, and what that switches."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from rankzero.distributed.state import GradientState
    from rankzero.training.engines.base import Engine
    from rankzero.training.precision import LossScaler


class Accumulation:
    """Counts micro-batches, and holds back gradient exchange until a window is full.

    Args:
        engine: The engine, which knows how the exchange is held back.
        gradient_state: Where the decision is published to optimizers and schedulers.
    """

    def __init__(self, engine: Engine, gradient_state: GradientState) -> None:
        self.engine = engine
        self.gradient_state = gradient_state
        self.step = 0

    def advance(self) -> bool:
        """Count one micro-batch; return whether it ends a window."""
        state = self.gradient_state
        if state.sync_with_dataloader and state.end_of_dataloader:
            self.step = 0
            synchronise = True
        else:
            self.step += 1
            synchronise = self.step % state.num_steps == 0
        state._set_sync_gradients(synchronise)  # noqa: SLF001
        return synchronise

    def backward(self, loss: torch.Tensor, scaler: LossScaler | None, **kwargs: Any) -> None:
        """Compute gradients of ``loss`` over the number of steps, times the loss scale if any."""
        steps = self.gradient_state.num_steps
        if steps != 1:
            loss = loss / steps
        if scaler is not None:
            loss = scaler.backward(loss)
        self.engine.backward(loss, **kwargs)

    def window(self, models: Iterable[nn.Module]) -> Window:
        """Return the context of one micro-batch over ``models``."""
        return Window(self, models)


class Window:
    """The context that ``accumulate`` gives: one micro-batch."""

    __slots__ = ("accumulation", "models", "stack")

    def __init__(self, accumulation: Accumulation, models: Iterable[nn.Module]) -> None:
        self.accumulation = accumulation
        self.models = models
        self.stack: contextlib.ExitStack | None = None

    def __enter__(self) -> None:
        accumulation = self.accumulation
        if accumulation.advance() or accumulation.gradient_state.sync_each_batch:
            return
        self.stack = contextlib.ExitStack()
        for model in self.models:
            self.stack.enter_context(accumulation.engine.no_sync(model))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.stack is not None:
            self.stack.__exit__(kind, error, trace)
            self.stack = None
