"""What all ranks computed on a batch, each sample once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rankzero.distributed.collectives import gather, mismatch
from rankzero.distributed.nested import get_data_structure, in_key_order
from rankzero.training.data.sharding import ShortStep

if TYPE_CHECKING:
    from rankzero.distributed.state import GradientState

logger = logging.getLogger(__name__)


def gather_for_metrics(
    data: Any, gradient_state: GradientState, use_gather_object: bool = False
) -> Any:
    """Collect ``data`` from all ranks, without the samples that were repeated to even out ranks.

    A structure (tuple, named tuple, mapping, and a list of nothing but tensors) is kept, and
    its fields are collected one by one:

    * a tensor or array of shape (samples, ...): put together along the first dimension, in the order
      of the loader, and trimmed in a step with repeated samples. One whose first dimension is no
      multiple of the number of samples is not per sample, and is not trimmed;
    * a 0-d tensor: one value a rank, without the ranks that hold nothing but repeated samples;
    * a list, or a tuple of plain values such as strings: one element a sample; put together and
      trimmed. So is every list where ``use_gather_object`` is set;
    * None on every rank: None;
    * anything else: a list of one value a rank, trimmed as 0-d tensors are.

    Without ``even_batches`` the later ranks may be without a batch in the last step. They are not
    waited for; the ranks that have one collect it among themselves. Rank 0 always has one: read
    the metric there.

    On one process ``data`` comes back as it is, and so does it outside of a prepared loader, where
    nothing is known to be repeated, except for being collected.

    Args:
        data: What this rank computed. The structure is the same on all ranks.
        gradient_state: Knows the loader that is being iterated, and where it stands.
        use_gather_object: Send everything as pickled objects; for tensors whose shapes differ in
            more than the first dimension, in a list with one element a sample.

    Returns:
        The same structure on every rank that took part.

    Raises:
        DistributedOperationException: on every rank, where structures, or shapes beyond the number
            of samples, differ between ranks.
    """
    if not _meet():
        return data
    step = _short_step(gradient_state)
    everyone = torch.distributed.get_world_size()
    present = everyone if step is None else step.present
    if step is not None and step.total is None and torch.distributed.get_rank() >= step.holders:
        # A whole batch was repeated: this rank takes part with nothing.
        data = _map_samples(lambda samples: samples[:0], data, use_gather_object)
    if present == everyone and not use_gather_object and _only_tensors(data):
        together = gather(data)
    else:
        together = _gather_objects(data, present, use_gather_object)
    return together if step is None else _trim_like(data, together, step, use_gather_object)


def _meet() -> bool:
    ranks = torch.distributed
    return ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1


def _short_step(gradient_state: GradientState) -> ShortStep | None:
    """Return what the ranks hold in the present step of the active loader, where it is short."""
    step = getattr(gradient_state.active_dataloader, "short_step", None)
    return step if isinstance(step, ShortStep) else None


def _trim_like(mine: Any, together: Any, step: ShortStep, use_gather_object: bool) -> Any:
    """Take what was only repeated off the values of all ranks; ``mine`` is one rank's part."""
    if _is_structure(mine, use_gather_object):
        pairs = zip(_fields(mine), _fields(together), strict=True)
        return _rebuild(mine, [_trim_like(a, b, step, use_gather_object) for a, b in pairs])
    if together is None:
        return None
    by_sample = mine.ndim > 0 if _is_array(mine) else isinstance(mine, (list, tuple))
    return _trim(together, step) if by_sample else together[: step.holders]


def _trim(samples: Any, step: ShortStep) -> Any:
    """Cut the repeated samples off what all ranks hold; several values a sample are kept together."""
    if step.samples is None or step.total in (None, step.samples):
        return samples  # nothing was repeated, or what was is not there
    each, rest = divmod(len(samples), step.total)
    if rest:
        logger.warning(
            "gather_for_metrics got %d values for %d samples, %d of them repeated: they can't be told "
            "apart, and are all kept. Give a multiple of the number of samples on each rank.",
            len(samples),
            step.total,
            step.total - step.samples,
        )
        return samples
    return samples[: each * step.samples]


# What is a structure, and what is one element a sample


def _is_array(data: Any) -> bool:
    return isinstance(data, (torch.Tensor, np.ndarray))


def _is_container(data: Any) -> bool:
    return isinstance(data, (list, tuple, Mapping))


def _is_structure(data: Any, use_gather_object: bool) -> bool:
    """Tell whether ``data`` has fields, rather than one element a sample."""
    if isinstance(data, Mapping) or hasattr(data, "_fields"):
        return True
    if isinstance(data, tuple):
        return any(_is_container(part) or _is_array(part) for part in data)
    if not isinstance(data, list) or use_gather_object or not any(map(_is_array, data)):
        return False
    # A list with tensors is what the default collate makes of a sample's fields; with something
    # else than tensors and batches of values beside them it is one element a sample.
    return all(_is_array(part) or _is_container(part) for part in data)


def _only_tensors(data: Any) -> bool:
    """Tell whether ``data`` has tensors, and nothing else, at its ends."""
    if isinstance(data, Mapping):
        return bool(data) and all(map(_only_tensors, data.values()))
    if isinstance(data, (list, tuple)):
        return bool(data) and all(map(_only_tensors, data))
    return isinstance(data, torch.Tensor)


def _rebuild(like: Any, parts: list[Any]) -> Any:
    """Return a structure like ``like`` with other fields, given in the order of ``_fields``."""
    if isinstance(like, Mapping):
        by_key = dict(zip(in_key_order(like), parts, strict=True))
        pairs = {key: by_key[key] for key in like}
        return pairs if type(like) is dict else _mapping_like(like, pairs)
    if hasattr(like, "_fields"):
        return type(like)(*parts)
    return type(like)(parts)


def _mapping_like(like: Mapping[Any, Any], pairs: dict[Any, Any]) -> Any:
    try:
        return type(like)(pairs)  # type: ignore[call-arg]
    except TypeError:
        # Its constructor wants something else (a default dictionary, a class of some library).
        return pairs


def _fields(data: Any) -> Sequence[Any]:
    if isinstance(data, Mapping):
        return [data[key] for key in in_key_order(data)]
    return list(data)


def _layout(data: Any) -> Any:
    """Return what has to be the same on all ranks for their fields to belong together."""
    if isinstance(data, Mapping):
        return "mapping", tuple(map(repr, in_key_order(data)))
    return (type(data).__name__, len(data)) if isinstance(data, (list, tuple)) else type(data)


def _map_samples(function: Callable[[Any], Any], data: Any, use_gather_object: bool) -> Any:
    """Apply ``function`` to everything in ``data`` that has one element a sample."""
    if _is_array(data):
        return function(data) if data.ndim else data
    if _is_structure(data, use_gather_object):
        return _rebuild(
            data, [_map_samples(function, part, use_gather_object) for part in _fields(data)]
        )
    return function(data) if isinstance(data, (list, tuple)) else data


# Objects


def _gather_objects(data: Any, present: int, use_gather_object: bool) -> Any:
    """Collect ``data`` as pickled objects, and put the ranks' parts together field by field."""
    device = _device_of(data)
    everyone = torch.distributed.get_world_size()
    if present < everyone:
        parts = _exchange(_to_host(data), present)
    else:
        parts = [None] * everyone
        torch.distributed.all_gather_object(parts, _to_host(data))
    return _merge(parts, device, use_gather_object)


def _merge(parts: list[Any], device: torch.device | None, use_gather_object: bool) -> Any:
    first = parts[0]
    if isinstance(first, torch.Tensor):
        tensors = [part.to(device) for part in parts]
        return torch.cat(tensors) if first.ndim else torch.stack(tensors)
    if isinstance(first, np.ndarray):
        return np.concatenate(parts) if first.ndim else np.stack(parts)
    if any(_is_structure(part, use_gather_object) for part in parts):
        if len(set(map(_layout, parts))) > 1:
            raise mismatch("gather_for_metrics", [get_data_structure(part) for part in parts])
        columns = zip(*map(_fields, parts), strict=True)
        return _rebuild(first, [_merge(list(c), device, use_gather_object) for c in columns])
    if isinstance(first, (list, tuple)):
        moved = (_to(part, device) for part in chain.from_iterable(parts))
        return type(first)(moved)
    if all(part is None for part in parts):
        return None
    return parts


def _convert(function: Callable[[torch.Tensor], torch.Tensor], data: Any) -> Any:
    if isinstance(data, torch.Tensor):
        return function(data)
    if isinstance(data, (list, tuple, Mapping)):
        return _rebuild(data, [_convert(function, part) for part in _fields(data)])
    return data


def _to_host(data: Any) -> Any:
    # A view is pickled with the whole of what it is a view of: a copy is not.
    return _convert(lambda tensor: tensor.detach().cpu().clone(), data)


def _to(data: Any, device: torch.device | None) -> Any:
    if device is None or device.type == "cpu":
        return data
    return _convert(lambda tensor: tensor.to(device), data)


def _device_of(data: Any) -> torch.device | None:
    """Return the device of the first tensor in ``data``, None where there is none."""
    if isinstance(data, torch.Tensor):
        return data.device
    if isinstance(data, (list, tuple, Mapping)):
        found = (_device_of(part) for part in _fields(data))
        return next((device for device in found if device is not None), None)
    return None


# The ranks that have a batch, where not all have


def _exchange(data: Any, present: int) -> list[Any]:
    """Return what ranks 0 to ``present - 1`` hold, without asking the others for anything.

    It goes through rank 0, in messages between two ranks. A process group of these ranks won't do:
    torch names a group that is made without the others after the number of groups that the process
    has, which may differ between the ranks by then.
    """
    rank = torch.distributed.get_rank()
    if rank:
        torch.distributed.send_object_list([data], dst=0)
        together: list[Any] = [None]
        torch.distributed.recv_object_list(together, src=0)
        return list(together[0])
    parts = [data]
    for other in range(1, present):
        received: list[Any] = [None]
        torch.distributed.recv_object_list(received, src=other)
        parts += received
    for other in range(1, present):
        torch.distributed.send_object_list([parts], dst=other)
    return parts
