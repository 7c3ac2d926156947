"""What every test starts from: an environment and a process state of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

PREFIXES = ("RANKZERO_", "ACCELERATE_", "SLURM_", "OMPI_", "PMI_", "MPI_", "MV2_", "TORCHELASTIC_")
NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide the launcher's variables, and forget the shared state that a test has made."""
    for name in list(os.environ):
        if name in NAMES or name.startswith(PREFIXES):
            monkeypatch.delenv(name)
    yield
    module = sys.modules.get("rankzero.distributed.state")
    if module is not None:
        module.AcceleratorState._reset_state(True)
        module.GradientState._reset_state()
