"""Seeds and generators."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from rankzero.state import PartialState
from rankzero.utils import set_seed, synchronize_rng_states
from tests.ranks import run_ranks


def draws() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(1).item()


def test_a_seed_fixes_every_generator() -> None:
    set_seed(3)
    first = draws()
    set_seed(3)
    assert draws() == first


def _device_specific() -> list:
    PartialState()
    set_seed(3)
    same = draws()
    set_seed(3, device_specific=True)
    return [same, draws()]


def test_seeds_are_equal_on_all_ranks_unless_asked_otherwise() -> None:
    (same0, own0), (same1, own1) = run_ranks(_device_specific, 2)
    assert same0 == same1 == own0
    assert own1 != own0


def test_deterministic_algorithms_can_be_asked_for() -> None:
    try:
        set_seed(1, deterministic=True)
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("seed", [-1, 2**32, "1", 1.5, True])
def test_a_seed_out_of_range_is_turned_down(seed: object) -> None:
    with pytest.raises(ValueError, match="seed=.*whole number"):
        set_seed(seed)  # type: ignore[arg-type]


def _in_step() -> list:
    rank = PartialState().process_index
    torch.manual_seed(rank)
    generator = torch.Generator().manual_seed(10 + rank)
    synchronize_rng_states(["torch", "generator"], generator)
    return [torch.rand(1).item(), torch.rand(1, generator=generator).item()]


def test_generators_are_brought_into_step_with_rank_zero() -> None:
    first, second = run_ranks(_in_step, 2)
    assert first == second
    torch.manual_seed(0)
    assert first[0] == torch.rand(1).item()


def test_a_generator_that_is_missing_or_unknown_is_named() -> None:
    with pytest.raises(ValueError, match="pass generator="):
        synchronize_rng_states(["generator"])
    with pytest.raises(ValueError, match="rng_type='torhc'.*Did you mean 'torch'"):
        synchronize_rng_states(["torhc"])
