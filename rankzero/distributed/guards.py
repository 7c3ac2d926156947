"""Guards and barriers: who runs a function, who goes first, who gets which share."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist


class Ranks(Protocol):
    """What barriers need to know."""

    num_processes: int
    device: torch.device


def wait_for_everyone(ranks: Ranks) -> None:
    """Wait until every process has come here; nothing in one process or without a group."""
    if ranks.num_processes > 1 and dist.is_initialized():
        index: int | None = ranks.device.index
        dist.barrier(device_ids=None if index is None else [index])


def run_where(condition: Callable[[], bool], function: Callable[..., Any] | None) -> Any:
    """Decorate ``function`` to run where ``condition`` holds when it is called.

    Elsewhere it returns None. With ``function=None`` a decorator is returned.
    """
    if function is None:
        return functools.partial(run_where, condition)

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if condition() else None

    return guarded


def checked_rank(argument: str, rank: int | None, total: int) -> int:
    """Return ``rank``.

    Raises:
        ValueError: it is missing, or not among ``total`` ranks.
    """
    if rank is None or isinstance(rank, bool) or not isinstance(rank, int) or not 0 <= rank < total:
        raise ValueError(f"{argument}={rank!r}: write a rank from 0 to {total - 1}.")
    return rank


@contextlib.contextmanager
def leader_first(ranks: Ranks, leads: bool) -> Iterator[None]:
    """Let leaders run the block before the others, who go on even where a leader's raises."""
    if not leads:
        wait_for_everyone(ranks)
    try:
        yield
    finally:
        if leads:
            wait_for_everyone(ranks)


def bounds_of_share(length: int, rank: int, world_size: int) -> tuple[int, int]:
    """Return the half-open range of items that are ``rank``'s; the first ranks get one more."""
    share, extra = divmod(length, world_size)
    start = rank * share + min(rank, extra)
    return start, start + share + (rank < extra)


def share_of(inputs: Any, rank: int, world_size: int, apply_padding: bool = False) -> Any:
    """Return ``rank``'s share of ``inputs``.

    Args:
        inputs: A list, tuple, tensor, array, dataset, or a mapping of them.
        rank: Whose share.
        world_size: Among how many.
        apply_padding: Repeat the last item so that all shares have one length. There is nothing to
            repeat where there is no item at all.

    Raises:
        ValueError: a mapping whose values differ in length.
        TypeError: something without a length.
    """
    if world_size == 1:
        return inputs
    if isinstance(inputs, Mapping):
        for key, value in inputs.items():
            if not hasattr(value, "__len__"):
                raise TypeError(
                    f"inputs[{key!r}]={value!r} has no length: split_between_processes divides lists, "
                    "tuples, tensors, arrays and datasets."
                )
        lengths = {key: len(value) for key, value in inputs.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(
                f"split_between_processes divides the values of a dict alike, and theirs have the "
                f"lengths {lengths}: give them one length."
            )
        return {k: share_of(v, rank, world_size, apply_padding) for k, v in inputs.items()}
    if not hasattr(inputs, "__len__") or not hasattr(inputs, "__getitem__"):
        raise TypeError(
            f"inputs={inputs!r}: split_between_processes divides lists, tuples, dicts, tensors, "
            "arrays and datasets with a length."
        )
    length = len(inputs)
    start, end = bounds_of_share(length, rank, world_size)
    longest = -(-length // world_size)
    missing = longest - (end - start) if apply_padding and length else 0
    return _take(inputs, start, end, missing)


def _take(inputs: Any, start: int, end: int, missing: int) -> Any:
    """Return items ``start`` to ``end`` followed by the last of all, ``missing`` times."""
    if isinstance(inputs, (list, tuple, str)):
        sequence: Any = inputs
        return sequence[start:end] + sequence[-1:] * missing
    if isinstance(inputs, torch.Tensor):
        return torch.cat([inputs[start:end], *[inputs[-1:]] * missing])
    indices = [*range(start, end), *[len(inputs) - 1] * missing]
    if type(inputs).__module__.startswith("numpy"):
        return inputs[indices]
    select = getattr(inputs, "select", None)  # datasets of the `datasets` package
    return select(indices) if callable(select) else torch.utils.data.Subset(inputs, indices)
