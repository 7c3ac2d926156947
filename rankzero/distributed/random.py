"""Seeds, and bringing random number generators into step across ranks."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import torch

from rankzero.config.enums import RNGType
from rankzero.distributed.collectives import broadcast
from rankzero.distributed.devices import row_named
from rankzero.distributed.state import PartialState


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seed Python's, numpy's, torch's and the device's generators.

    Args:
        seed: 0 to 2**32 - 1.
        device_specific: Add the rank, so that ranks draw different numbers.
        deterministic: Let torch use deterministic algorithms only.

    Raises:
        ValueError: a seed out of range.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r}: write a whole number from 0 to {2**32 - 1}.")
    if device_specific:
        seed = (seed + PartialState().process_index) % 2**32
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)  # devices too
    if deterministic:
        torch.use_deterministic_algorithms(True)


def synchronize_rng_state(
    rng_type: RNGType | str | None = None, generator: torch.Generator | None = None
) -> None:
    """Give every rank the state of rank 0's generator.

    Args:
        rng_type: "torch", a device's type, or "generator".
        generator: The generator, where ``rng_type`` is "generator".

    Raises:
        ValueError: "generator" without one, or an unknown type.
    """
    kind = RNGType.parse("rng_type", rng_type)
    if kind is RNGType.GENERATOR and generator is None:
        raise ValueError("rng_type='generator' needs the generator: pass generator=.")
    state = PartialState()
    if state.num_processes == 1:
        return
    if kind is RNGType.GENERATOR:
        assert generator is not None  # noqa: S101 - told above
        generator.set_state(broadcast(generator.get_state()))
    elif kind is RNGType.TORCH:
        torch.set_rng_state(broadcast(torch.get_rng_state()))
    else:
        row = row_named(kind.value, "rng_type")
        if not row.is_available():
            raise ValueError(f"rng_type={kind.value!r}: this machine shows no such device.")
        row.set_rng_state(broadcast(row.get_rng_state().cpu()))


def synchronize_rng_states(
    rng_types: Iterable[RNGType | str], generator: torch.Generator | None = None
) -> None:
    """Do so for several types of generator."""
    for rng_type in rng_types:
        synchronize_rng_state(rng_type, generator=generator)
