"""Sharding arithmetic: properties that hold for any length, batch size and number of ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler

from rankzero.data_loader import BatchSamplerShard, IterableDatasetShard
from rankzero.training.data.sharding import ShardPlan

MOST_RANKS = 4096


@st.composite
def plans(draw: Any, most_ranks: int = MOST_RANKS, most_steps: int = 3) -> ShardPlan:
    world = draw(st.integers(1, most_ranks))
    split = draw(st.booleans())
    share = draw(st.integers(1, 7))
    total = share * world
    return ShardPlan(
        length=draw(st.integers(0, most_steps * total)),
        batch_size=total if split else share,
        world_size=world,
        split_batches=split,
        even_batches=draw(st.booleans()),
        drop_last=draw(st.booleans()),
    )


def batches_of(plan: ShardPlan, step: int) -> list[list[int]]:
    """Return the batches of all ranks that have one in this step, in order of rank."""
    ranks = (rank for rank in range(plan.world_size) if step < plan.num_batches(rank))
    return [plan.batch(rank, step) for rank in ranks]


@given(plans())
@example(ShardPlan(3, 4, 2))
@example(ShardPlan(1, 1, 4096))
@example(ShardPlan(0, 5, 3))
def test_every_sample_is_seen_and_repeated_only_where_padding_says_so(plan: ShardPlan) -> None:
    seen = [i for step in range(plan.steps) for batch in batches_of(plan, step) for i in batch]
    kept = plan.length - plan.length % plan.total_batch_size if plan.drop_last else plan.length
    assert seen[:kept] == list(range(kept))
    padding = len(seen) - kept
    if plan.pads and plan.remainder:
        assert padding == plan.total_batch_size - plan.remainder
        assert seen[kept:] == [i % plan.length for i in range(kept, kept + padding)]
    else:
        assert padding == 0


@given(plans())
def test_ranks_have_equally_many_batches_unless_evening_out_is_off(plan: ShardPlan) -> None:
    counts = {plan.num_batches(rank) for rank in range(plan.world_size)}
    if plan.even_batches or plan.drop_last or plan.world_size == 1:
        assert len(counts) == 1
    else:
        assert max(counts) - min(counts) <= 1


@given(plans())
def test_cutting_the_last_step_to_the_remainder_leaves_the_real_samples(plan: ShardPlan) -> None:
    if not plan.steps or not plan.remainder:
        return
    gathered = [i for batch in batches_of(plan, plan.steps - 1) for i in batch]
    start = plan.length - plan.remainder
    assert gathered[: plan.remainder] == list(range(start, plan.length))
    short = plan.short_step
    assert short is not None
    assert (short.samples, short.total) == (plan.remainder, len(gathered))
    assert short.present == len(batches_of(plan, plan.steps - 1))


@given(plans(most_ranks=6))
def test_the_sampler_gives_what_the_arithmetic_says(plan: ShardPlan) -> None:
    for rank in range(plan.world_size):
        inner = BatchSampler(SequentialSampler(range(plan.length)), plan.batch_size, plan.drop_last)
        shard = BatchSamplerShard(
            inner, plan.world_size, rank, plan.split_batches, plan.even_batches
        )
        expected = [plan.batch(rank, step) for step in range(plan.num_batches(rank))]
        assert [list(batch) for batch in shard] == expected
        assert len(shard) == len(expected)


@given(plans(most_ranks=6))
def test_a_stream_is_divided_as_the_arithmetic_says(plan: ShardPlan) -> None:
    for rank in range(plan.world_size):
        shard = IterableDatasetShard(
            range(plan.length),
            batch_size=plan.batch_size,
            drop_last=plan.drop_last,
            num_processes=plan.world_size,
            process_index=rank,
            split_batches=plan.split_batches,
            even_batches=plan.even_batches,
        )
        steps = range(plan.num_batches(rank))
        assert list(shard) == [i for step in steps for i in plan.batch(rank, step)]


def test_a_batch_that_cannot_be_split_names_the_sizes_that_can() -> None:
    with pytest.raises(
        ValueError, match=r"batch_size=10 .*num_processes=4: use batch_size 8 or 12"
    ):
        ShardPlan(100, 10, 4, split_batches=True)
    with pytest.raises(ValueError, match="use batch_size 4,"):
        BatchSamplerShard(BatchSampler(range(9), 3, False), 4, 0, split_batches=True)


def test_a_rank_that_does_not_exist_is_turned_down() -> None:
    with pytest.raises(ValueError, match="process_index=2 is not one of num_processes=2"):
        BatchSamplerShard([[0]], 2, 2)


def test_batches_of_any_size_are_dealt_and_repeated_whole() -> None:
    batches = [[0, 1, 2], [3], [4, 5, 6, 7]]
    dealt = [list(BatchSamplerShard(batches, 2, rank)) for rank in range(2)]
    assert dealt == [[[0, 1, 2], [4, 5, 6, 7]], [[3], [0, 1, 2]]]
    uneven = [list(BatchSamplerShard(batches, 2, rank, even_batches=False)) for rank in range(2)]
    assert uneven == [[[0, 1, 2], [4, 5, 6, 7]], [[3]]]


def test_an_endless_batch_sampler_is_read_as_it_is_needed() -> None:
    def endless() -> Any:
        number = 0
        while True:
            yield [number]
            number += 1

    class Endless:
        def __iter__(self) -> Any:
            return endless()

    shard = iter(BatchSamplerShard(Endless(), 3, 1))
    assert [next(shard) for _ in range(3)] == [[1], [4], [7]]
