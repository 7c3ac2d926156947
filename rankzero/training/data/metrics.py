"""Gathering what was computed on a batch, each sample of the dataset once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from rankzero.distributed.collectives import gather
from rankzero.distributed.nested import honor_type, leaves, recursively_apply, slice_tensors
from rankzero.distributed.state import GradientState, PartialState
from rankzero.training.data.sharding import ShortStep

_groups: dict[int, Any] = {}


def gather_for_metrics(
    data: Any, gradient_state: GradientState, use_gather_object: bool = False
) -> Any:
    """Gather over ranks, without the samples that were repeated to even out the ranks.

    Args:
        data: A structure of tensors whose first dimension is the sample; or of anything else, where
            lists hold one item a sample, and tuples and dicts are structure. 0-d tensors are one
            value a rank, and all are kept.
        gradient_state: Knows the loader that is being iterated.
        use_gather_object: Treat ``data`` as objects even where it is made of tensors.

    Returns:
        The same structure on every rank, in the order of the dataset.
    """
    state = PartialState()
    tensors_only = not use_gather_object and _holds_tensors_only(data)
    if state.num_processes == 1:
        return gather(data) if tensors_only else data
    loader = gradient_state.active_dataloader
    short = loader.short_step if loader is not None and loader.end_of_dataloader else None
    if short is not None and short.samples is None and state.process_index >= short.holders:
        data = slice_tensors(data, slice(0, 0)) if tensors_only else []
    group = None
    if short is not None and short.present < state.num_processes:
        group = _group_of_first(short.present)
    if not tensors_only:
        world = state.num_processes if short is None else short.present
        return _gather_objects(data, short, group, world)
    zero_d = iter([tensor.ndim == 0 for tensor in leaves(data)])
    return recursively_apply(
        lambda tensor: tensor if next(zero_d) else _trim(tensor, short), gather(data, group)
    )


def _holds_tensors_only(data: Any) -> bool:
    return all(isinstance(leaf, torch.Tensor) for leaf in leaves(data, test_type=lambda _: True))


def _trim(items: Any, short: ShortStep | None) -> Any:
    """Cut off what was repeated; it stands behind the real samples.

    What holds k items a sample is cut to k times the samples. What was not computed a sample is
    left whole.
    """
    if short is None or short.samples is None:
        return items
    if short.total is None:
        return items[: short.samples]
    each, rest = divmod(len(items), short.total)
    return items if rest or not each else items[: each * short.samples]


def _group_of_first(present: int) -> Any:
    """Return the group of ranks 0 to ``present`` - 1: the others have no batch any more.

    Only its members call, since the others are elsewhere by now.
    """
    if present not in _groups:
        _groups[present] = dist.new_group(list(range(present)), use_local_synchronization=True)
    return _groups[present]


def _gather_objects(data: Any, short: ShortStep | None, group: Any, world: int) -> Any:
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, data, group=group)
    if short is not None and short.samples is None:
        everyone = everyone[: short.holders]
    return _join(everyone, lambda items: _trim(items, short))


def _join(parts: list[Any], trim: Callable[[Any], Any]) -> Any:
    """Join what the ranks hold: lists and tensors end to end, tuples and dicts item by item."""
    first = parts[0]
    if isinstance(first, tuple):
        return honor_type(first, (_join(list(items), trim) for items in zip(*parts, strict=True)))
    if isinstance(first, dict):
        return {key: _join([part[key] for part in parts], trim) for key in first}
    if isinstance(first, list):
        return trim([item for part in parts for item in part])
    if isinstance(first, torch.Tensor) and first.ndim:
        return trim(torch.cat(parts))
    return parts
