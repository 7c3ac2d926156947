"""One order for all ranks: what a sampler draws is what it would draw on rank 0.

Every rank reads its part out of the same stream, so all ranks must have the same permutation. At
the first draw of an epoch the states of the generators that a sampler may draw from are taken from
rank 0, in one small collective. Nothing about rank 0 changes: for a given seed N ranks see the
permutation that one process sees.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, SequentialSampler

from rankzero.distributed.collectives import broadcast_object_list
from rankzero.training.data.samplers import BatchSamplerShard, SeedableRandomSampler

FIXED_ORDER = (SequentialSampler, range, list, tuple)


def chain_of(sampler: Any) -> list[Any]:
    """Return ``sampler`` and the samplers inside it, outermost first."""
    found: list[Any] = []
    while sampler is not None and all(known is not sampler for known in found):
        found.append(sampler)
        inner = getattr(sampler, "batch_sampler", None)
        sampler = getattr(sampler, "sampler", None) if inner is None else inner
    return found


def has_fixed_order(sampler: Any) -> bool:
    """Tell whether a sampler is known to draw no random numbers."""
    *outer, innermost = chain_of(sampler)
    return type(innermost) in FIXED_ORDER and all(
        type(s) is BatchSampler or isinstance(s, BatchSamplerShard) for s in outer
    )


def generators_of(sampler: Any) -> list[torch.Generator]:
    """Return the generators that a sampler, or one inside it, was given."""
    held = [getattr(s, "generator", None) for s in chain_of(sampler)]
    return [generator for generator in held if isinstance(generator, torch.Generator)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    return bool(one == other)


# The generators of the process: how each one's state is read and set.
Access = tuple[Callable[[], Any], Callable[[Any], Any]]
PROCESS_WIDE: tuple[Access, ...] = (
    (torch.get_rng_state, torch.set_rng_state),
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
)


@contextlib.contextmanager
def order_of_rank_zero(sampler: Any, rank: int) -> Iterator[None]:
    """Have what is drawn inside drawn as on rank 0. A collective: every rank enters.

    A sampler's own generators stay in step with rank 0's. Of the process-wide ones, one that
    was in step with rank 0's before is so afterwards; one that went its own way (ranks seeded
    differently, for noise that differs between them) goes on from where it was.

    A sampler that draws from a process-wide generator again later in the epoch is out of reach:
    let it draw from a ``generator`` of its own. Where the order is fixed nothing is exchanged.
    """
    if has_fixed_order(sampler):
        yield
        return
    generators = generators_of(sampler)
    seedables = [s for s in chain_of(sampler) if isinstance(s, SeedableRandomSampler)]
    own = tuple(read() for read, _ in PROCESS_WIDE)
    held = [generator.get_state() for generator in generators]
    seeds = [s.initial_seed for s in seedables]
    payload: list[Any] = [(own, held, seeds) if rank == 0 else None]
    broadcast_object_list(payload, from_process=0)
    if rank == 0:
        yield
        return
    theirs, held, seeds = payload[0]
    for generator, state in zip(generators, held, strict=True):
        generator.set_state(state)
    for seedable, seed in zip(seedables, seeds, strict=True):
        seedable.initial_seed = seed
    strayed = []
    for (_, write), mine, other in zip(PROCESS_WIDE, own, theirs, strict=True):
        if not _same(mine, other):
            write(other)
            strayed.append((write, mine))
    try:
        yield
    finally:
        for write, mine in strayed:
            write(mine)


def share_generator_states(generators: list[torch.Generator], rank: int) -> None:
    """Set each generator to its state on rank 0. A collective: every rank calls."""
    payload = [[generator.get_state() for generator in generators] if rank == 0 else None]
    broadcast_object_list(payload, from_process=0)
    for generator, state in zip(generators, payload[0] or [], strict=True):
        generator.set_state(state)
