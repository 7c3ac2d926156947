"""What a plain loop computes on one process, the prepared loop computes on N."""

from __future__ import annotations

import pytest
import torch

from tests.ranks import run_ranks
from tests.training.loops import SAMPLES, plain_loop, prepared_loop


@pytest.mark.parametrize(("batch_size", "accumulate"), [(4, 1), (6, 2), (4, 5)])
def test_one_process_computes_bit_for_bit_what_the_plain_loop_does(
    batch_size: int, accumulate: int
) -> None:
    weights, rates = plain_loop(batch_size, accumulate)
    prepared, prepared_rates = prepared_loop(batch_size, accumulate)
    assert torch.equal(prepared, weights)
    assert prepared_rates == rates


def _on_each_rank(batch_size: int, accumulate: int, split_batches: bool) -> list:
    weights, rates = prepared_loop(batch_size, accumulate, split_batches=split_batches)
    return [weights.tolist(), rates]


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_ranks_that_share_a_batch_compute_what_one_process_does(
    world_size: int, accumulate: int
) -> None:
    weights, rates = plain_loop(6, accumulate)
    for got, got_rates in run_ranks(_on_each_rank, world_size, 6, accumulate, True):
        torch.testing.assert_close(torch.tensor(got), weights, rtol=1e-5, atol=1e-6)
        assert got_rates == rates


def test_ranks_with_a_batch_each_compute_what_one_process_does_with_the_batch_of_all() -> None:
    # The schedule is moved once a process, so that it ends where it does on one process.
    weights, rates = plain_loop(8, 2, scheduler_moves=2)
    assert len(rates) == 2 * SAMPLES // 16
    results = run_ranks(_on_each_rank, 2, 4, 2, False)
    for got, got_rates in results:
        torch.testing.assert_close(torch.tensor(got), weights, rtol=1e-5, atol=1e-6)
        assert got_rates == rates
    assert results[0] == results[1]


def test_shuffling_is_new_each_epoch_and_follows_the_seed() -> None:
    first, _ = prepared_loop(6, 1, epochs=1)
    again, _ = prepared_loop(6, 1, epochs=1)
    assert torch.equal(first, again)
