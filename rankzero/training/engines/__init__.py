"""Ways of training: one file an engine, one row a choice."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from rankzero.config.enums import DistributedType
from rankzero.training.engines.base import Engine

# The engine of each distributed type, as "module:class", so that one engine's import costs only
# those who use it. An engine is added here and in its own file, nowhere else.
ENGINES: dict[DistributedType, str] = {
    DistributedType.NO: "rankzero.training.engines.single:SingleEngine",
    DistributedType.MULTI_CPU: "rankzero.training.engines.ddp:DDPEngine",
    DistributedType.MULTI_GPU: "rankzero.training.engines.ddp:DDPEngine",
    DistributedType.MULTI_XPU: "rankzero.training.engines.ddp:DDPEngine",
    DistributedType.MULTI_NPU: "rankzero.training.engines.ddp:DDPEngine",
}


def engine_class(distributed_type: DistributedType) -> type[Engine]:
    """Return the engine for a distributed type.

    Raises:
        NotImplementedError: this version has no engine for it.
    """
    path = ENGINES.get(distributed_type)
    if path is None:
        known = ", ".join(str(known) for known in ENGINES)
        raise NotImplementedError(
            f"distributed_type={str(distributed_type)!r} has no engine in this version; there are "
            f"engines for {known}."
        )
    module, _, name = path.partition(":")
    return cast(type[Engine], getattr(import_module(module), name))
