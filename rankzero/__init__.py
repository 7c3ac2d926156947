"""rankzero: your PyTorch loop on any number of processes, and every number it logs, kept.

Names are resolved when first used: ``import rankzero`` imports neither torch nor any tracker.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from rankzero.accelerator import Accelerator as Accelerator
    from rankzero.config.enums import DDPCommunicationHookType as DDPCommunicationHookType
    from rankzero.config.enums import DistributedType as DistributedType
    from rankzero.config.plugins import AutocastKwargs as AutocastKwargs
    from rankzero.config.plugins import DataLoaderConfiguration as DataLoaderConfiguration
    from rankzero.config.plugins import (
        DistributedDataParallelKwargs as DistributedDataParallelKwargs,
    )
    from rankzero.config.plugins import GradScalerKwargs as GradScalerKwargs
    from rankzero.config.plugins import InitProcessGroupKwargs as InitProcessGroupKwargs
    from rankzero.distributed.random import synchronize_rng_states as synchronize_rng_states
    from rankzero.distributed.state import PartialState as PartialState

_NAMES = {
    "Accelerator": "rankzero.accelerator",
    "AutocastKwargs": "rankzero.config.plugins",
    "DDPCommunicationHookType": "rankzero.config.enums",
    "DataLoaderConfiguration": "rankzero.config.plugins",
    "DistributedDataParallelKwargs": "rankzero.config.plugins",
    "DistributedType": "rankzero.config.enums",
    "GradScalerKwargs": "rankzero.config.plugins",
    "InitProcessGroupKwargs": "rankzero.config.plugins",
    "PartialState": "rankzero.distributed.state",
    "synchronize_rng_states": "rankzero.distributed.random",
}

__all__ = [*sorted(_NAMES), "__version__"]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'rankzero' has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
