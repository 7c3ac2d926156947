"""The table of devices: one row a type, with everything in which types differ.

Nothing outside this file asks for a device's name to decide what to do; it asks the row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import torch

from rankzero.config.choices import unknown_choice
from rankzero.config.enums import DistributedType
from rankzero.config.environment import find_setting, read_bool

HALF = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class DeviceRow:
    """A type of device.

    Attributes:
        name: torch's name of the type, as in ``torch.device(name)``.
        distributed_type: What several processes on such devices are called.
        collective_backend: What ``init_process_group`` is given; None: none exchanges.
        autocast_dtypes: The types that autocast takes.
        package: A package that brings the type to torch, imported when the row is looked at.
        indexed: Whether a machine may have several, so that each process binds one.
        found: Whether there is one, asked only where the package is there.
    """

    name: str
    distributed_type: DistributedType
    collective_backend: str | None
    found: Callable[[], bool] = field(repr=False)
    autocast_dtypes: tuple[torch.dtype, ...] = HALF
    package: str | None = None
    indexed: bool = True

    @property
    def module(self) -> Any:
        """Torch's module for the type, such as ``torch.cuda``; None for the CPU."""
        return None if self.name == "cpu" else getattr(torch, self.name, None)

    def is_available(self) -> bool:
        """Tell whether this machine has such a device."""
        if self.package is not None:
            if find_spec(self.package) is None:
                return False
            __import__(self.package)
        return bool(self.found())

    def count(self) -> int:
        """Return the number of such devices that this process sees; 1 where types have no index."""
        if not self.is_available():
            return 0
        return int(self.module.device_count()) if self.indexed else 1

    def bind(self, local_rank: int) -> torch.device:
        """Make one device this process's own, before any collective; return it.

        Raises:
            RuntimeError: there are fewer devices than processes on this node.
        """
        if not self.indexed:
            return torch.device(self.name)
        count = self.count()
        if local_rank >= count:
            raise RuntimeError(
                f"local rank {local_rank} has no {self.name} device: this machine shows {count}. "
                f"Start at most {count} processes on it, or pass cpu=True."
            )
        device = torch.device(self.name, local_rank)
        self.module.set_device(device)
        return device

    def synchronize(self) -> None:
        """Wait for all work queued on the device."""
        self._call("synchronize")

    def empty_cache(self) -> None:
        """Give memory that is held but not used back to the device."""
        self._call("empty_cache")

    def manual_seed(self, seed: int) -> None:
        """Seed the generators of all devices of the type."""
        seeder = "manual_seed_all" if hasattr(self.module, "manual_seed_all") else "manual_seed"
        self._call(seeder, seed)

    def get_rng_state(self) -> torch.Tensor:
        """Return the state of this process's device's generator, uint8 of shape (n,)."""
        module = torch if self.module is None else self.module
        state: torch.Tensor = module.get_rng_state()
        return state

    def set_rng_state(self, state: torch.Tensor) -> None:
        """Set the state of this process's device's generator."""
        module = torch if self.module is None else self.module
        module.set_rng_state(state.cpu())

    def _call(self, function: str, *args: Any) -> None:
        """Call a function of the device's module, where it has such a thing."""
        method = getattr(self.module, function, None)
        if method is not None:
            method(*args)


@dataclass(frozen=True)
class XLARow(DeviceRow):
    """TPUs and what else torch_xla drives, whose module is not part of torch."""

    @property
    def module(self) -> Any:
        """``torch_xla.core.xla_model``."""
        from torch_xla.core import xla_model

        return xla_model

    def bind(self, local_rank: int) -> torch.device:  # noqa: ARG002
        """Return the device that the XLA runtime gave this process."""
        return torch.device(self.module.xla_device())

    def synchronize(self) -> None:
        """Run what was recorded, and wait for it."""
        self.module.mark_step()
        self.module.wait_device_ops()

    def manual_seed(self, seed: int) -> None:
        """Seed the XLA generator."""
        self.module.set_rng_state(seed)

    def get_rng_state(self) -> torch.Tensor:
        """Return the XLA generator's state, int64 of shape (1,)."""
        return torch.tensor([self.module.get_rng_state()], dtype=torch.int64)

    def set_rng_state(self, state: torch.Tensor) -> None:
        """Set the XLA generator's state."""
        self.module.set_rng_state(int(state.reshape(-1)[0]))


# Collectives of tensors on the CPU go over gloo even where the device has a backend of its own, so
# that small facts are exchanged without waiting for the device. A row is added here, nowhere else.
# ROCm devices are torch's "cuda".
DEVICES: tuple[DeviceRow, ...] = (
    DeviceRow(
        "cuda",
        DistributedType.MULTI_GPU,
        "cpu:gloo,cuda:nccl",
        found=torch.cuda.is_available,
    ),
    DeviceRow(
        "xpu",
        DistributedType.MULTI_XPU,
        "cpu:gloo,xpu:xccl",
        found=lambda: hasattr(torch, "xpu") and torch.xpu.is_available(),
    ),
    DeviceRow(
        "npu",
        DistributedType.MULTI_NPU,
        "cpu:gloo,npu:hccl",
        found=lambda: hasattr(torch, "npu") and bool(torch.npu.is_available()),
        package="torch_npu",
    ),
    DeviceRow(
        "mps",
        DistributedType.NO,
        None,
        found=torch.backends.mps.is_available,
        indexed=False,
    ),
    XLARow(
        "xla",
        DistributedType.XLA,
        "xla",
        found=lambda: True,
        autocast_dtypes=(torch.bfloat16,),
        package="torch_xla",
        indexed=False,
    ),
    DeviceRow("cpu", DistributedType.MULTI_CPU, "gloo", found=lambda: True, indexed=False),
)


def row_named(name: str, argument: str = "device") -> DeviceRow:
    """Return the row of a device type, or of a device such as "cuda:1".

    Raises:
        ValueError: names ``argument`` and the known types, nearest first.
    """
    kind = name.split(":", maxsplit=1)[0].lower()
    for row in DEVICES:
        if row.name == kind:
            return row
    raise unknown_choice(argument, name, [row.name for row in DEVICES])


def row_of(device: torch.device | str) -> DeviceRow:
    """Return the row of a device."""
    return row_named(torch.device(device).type)


def find_device(cpu: bool = False) -> DeviceRow:
    """Return the row to use: the CPU if asked for, the environment's choice, or the first found.

    Args:
        cpu: Stay on the CPU. RANKZERO_USE_CPU does the same from outside.

    Raises:
        ValueError: RANKZERO_TORCH_DEVICE names a type that is not known.
        RuntimeError: it names one that is not there.
    """
    if cpu or read_bool("USE_CPU"):
        return row_named("cpu")
    chosen = find_setting("TORCH_DEVICE")
    if chosen is not None:
        row = row_named(chosen[1], argument=chosen[0])
        if not row.is_available():
            raise RuntimeError(
                f"{chosen[0]}={chosen[1]!r}, but this machine shows no such device: unset it, or "
                "write 'cpu'."
            )
        return row
    return next(row for row in DEVICES if row.is_available())


def chosen_index() -> int | None:
    """Return the index in RANKZERO_TORCH_DEVICE ("cuda:1"), which one process alone may choose."""
    chosen = find_setting("TORCH_DEVICE")
    return None if chosen is None else torch.device(chosen[1]).index
