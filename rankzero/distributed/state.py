"""The state that a process shares with itself: any number of objects see the same facts.

``PartialState`` knows ranks and the device, ``AcceleratorState`` the precision too, and
``GradientState`` where the loop stands. Their properties never communicate: what ranks must agree
on is agreed when the first object is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import torch

from rankzero.config.enums import DistributedType, PrecisionType
from rankzero.config.environment import find_setting, read_bool
from rankzero.config.plugins import GradientAccumulationPlugin
from rankzero.distributed import guards, process_group
from rankzero.distributed.devices import DeviceRow, chosen_index, find_device
from rankzero.distributed.topology import Topology, read_topology


def is_initialized() -> bool:
    """Tell whether an ``AcceleratorState`` has been made in this process."""
    return bool(AcceleratorState._shared_state)  # noqa: SLF001


class PartialState:
    """Ranks, the device, and process control; the first object made opens the process group.

    Args:
        cpu: Stay on the CPU.
        kwargs: ``backend``, ``init_method`` and ``timeout`` of the process group.

    Attributes:
        device: This process's device.
        backend: The collective backend; None for one process.
        distributed_type: How processes work together.
        num_processes: World size.
        process_index: Global rank.
        local_process_index: Rank inside the node.
        debug: Whether collectives compare shapes over ranks first.
        topology: Everything the launcher told.
        device_row: What the device's type can do.
        launch_id: "YYYYMMDD-HHMMSS-xxxxxx", one for all ranks of this launch.

    Raises:
        ValueError: settings other than those that are in force already.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}

    device: torch.device
    backend: str | None
    distributed_type: DistributedType
    num_processes: int
    process_index: int
    local_process_index: int
    debug: bool
    topology: Topology
    device_row: DeviceRow
    launch_id: str
    fork_launched: bool

    def __init__(self, cpu: bool = False, **kwargs: Any) -> None:
        self.__dict__ = self._shared_state
        if not self.initialized:
            self._start(cpu, kwargs)
        elif cpu and self.device.type != "cpu":
            raise ValueError(
                f"cpu=True, but this process already uses {self.device}: pass cpu=True to the first "
                "Accelerator or PartialState."
            )

    def _start(self, cpu: bool, options: dict[str, Any]) -> None:
        topology = process_group.open_topology() or read_topology(process_group.environment())
        row = find_device(cpu)
        if topology.world_size > 1 and row.collective_backend is None:
            raise ValueError(
                f"{topology.world_size} processes cannot train together on {row.name} devices: "
                "start one process, or pass cpu=True."
            )
        index = chosen_index() if topology.world_size == 1 else None
        device = row.bind(topology.local_rank if index is None else index)
        backend, launch_id = process_group.open_group(topology, row, device, options)
        self._shared_state.update(
            device=device,
            backend=backend,
            distributed_type=row.distributed_type if backend else DistributedType.NO,
            num_processes=topology.world_size,
            process_index=topology.rank,
            local_process_index=topology.local_rank,
            debug=read_bool("DEBUG_MODE"),
            topology=topology,
            device_row=row,
            launch_id=launch_id,
            fork_launched=read_bool("FORK_LAUNCHED"),
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(distributed_type={self.distributed_type}, "
            f"backend={self.backend}, num_processes={self.num_processes}, "
            f"process_index={self.process_index}, "
            f"local_process_index={self.local_process_index}, device={self.device})"
        )

    @classmethod
    def _reset_state(cls) -> None:
        """Forget everything, for tests; a process group that was opened stays open."""
        PartialState._shared_state.clear()

    @property
    def initialized(self) -> bool:
        """Whether the state has been made."""
        return "device" in self._shared_state

    @property
    def use_distributed(self) -> bool:
        """Whether there is more than one process."""
        return self.num_processes > 1

    @property
    def is_main_process(self) -> bool:
        """Whether this is global rank 0."""
        return self.process_index == 0

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first rank of its node."""
        return self.local_process_index == 0

    @property
    def is_last_process(self) -> bool:
        """Whether this is the highest rank."""
        return self.process_index == self.num_processes - 1

    @property
    def default_device(self) -> torch.device:
        """The type of device that would be chosen with nothing set."""
        return torch.device(find_device().name)

    def set_device(self) -> None:
        """Bind this process's device again, after something else has bound another."""
        self._shared_state["device"] = self.device_row.bind(self.local_process_index)

    def destroy_process_group(self, group: Any = None) -> None:
        """Leave the process group, or one ``group`` of it; nothing where there is none."""
        process_group.destroy(group)

    def wait_for_everyone(self) -> None:
        """Wait until every process has come here."""
        guards.wait_for_everyone(self)

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print on the first rank of each node."""
        if self.is_local_main_process:
            print(*args, **kwargs)

    def on_main_process(self, function: Callable[..., Any] | None = None) -> Any:
        """Decorate a function to run on global rank 0 only; it returns None elsewhere."""
        return guards.run_where(lambda: self.is_main_process, function)

    def on_local_main_process(self, function: Callable[..., Any] | None = None) -> Any:
        """Decorate a function to run on the first rank of each node only."""
        return guards.run_where(lambda: self.is_local_main_process, function)

    def on_last_process(self, function: Callable[..., Any]) -> Any:
        """Decorate a function to run on the highest rank only."""
        return guards.run_where(lambda: self.is_last_process, function)

    def on_process(
        self, function: Callable[..., Any] | None = None, process_index: int | None = None
    ) -> Any:
        """Decorate a function to run on rank ``process_index`` only."""
        rank = guards.checked_rank("process_index", process_index, self.num_processes)
        return guards.run_where(lambda: self.process_index == rank, function)

    def on_local_process(
        self, function: Callable[..., Any] | None = None, local_process_index: int | None = None
    ) -> Any:
        """Decorate a function to run on rank ``local_process_index`` of each node only."""
        total = self.num_processes  # nodes may hold different numbers of processes
        rank = guards.checked_rank("local_process_index", local_process_index, total)
        return guards.run_where(lambda: self.local_process_index == rank, function)

    def main_process_first(self) -> AbstractContextManager[None]:
        """Return a context that rank 0 runs before the others do."""
        return guards.leader_first(self, self.is_main_process)

    def local_main_process_first(self) -> AbstractContextManager[None]:
        """Return a context that the first rank of each node runs before the others do."""
        return guards.leader_first(self, self.is_local_main_process)

    def split_between_processes(
        self, inputs: Any, apply_padding: bool = False
    ) -> AbstractContextManager[Any]:
        """Return a context that yields this rank's share of a list, tuple, dict, tensor or dataset.

        Shares are contiguous; the first ranks get one item more where it does not divide.

        Args:
            inputs: What to divide. Of a dict each value is divided, so they have one length.
            apply_padding: Repeat the last item, so that all shares have one length.

        Raises:
            ValueError: a dict with values of different lengths.
            TypeError: something that has no length.
        """
        share = guards.share_of(inputs, self.process_index, self.num_processes, apply_padding)
        return contextlib.nullcontext(share)


class AcceleratorState:
    """``PartialState`` and the precision.

    Args:
        mixed_precision: "no", "fp16", "bf16" or "fp8"; None: RANKZERO_MIXED_PRECISION, else "no".
        cpu: Stay on the CPU.
        dynamo_plugin: Of a later version; raises unless None. So do the other plugins.
        deepspeed_plugin: As above.
        fsdp_plugin: As above.
        torch_tp_plugin: As above.
        megatron_lm_plugin: As above.
        parallelism_config: As above.
        _from_accelerator: Set by ``Accelerator``, the only one that should make the first object.
        kwargs: ``backend``, ``init_method`` and ``timeout`` of the process group.

    Raises:
        ValueError: a precision that is not known, or other than the one in force already.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        mixed_precision: str | None = None,
        cpu: bool = False,
        dynamo_plugin: Any = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: Any = None,
        torch_tp_plugin: Any = None,
        megatron_lm_plugin: Any = None,
        parallelism_config: Any = None,
        _from_accelerator: bool = False,
        **kwargs: Any,
    ) -> None:
        later = {
            "dynamo_plugin": dynamo_plugin,
            "deepspeed_plugin": deepspeed_plugin,
            "fsdp_plugin": fsdp_plugin,
            "torch_tp_plugin": torch_tp_plugin,
            "megatron_lm_plugin": megatron_lm_plugin,
            "parallelism_config": parallelism_config,
        }
        for name, value in later.items():
            if value is not None:
                raise NotImplementedError(f"{name}: this version of rankzero does not act on it.")
        self.__dict__ = self._shared_state
        asked = mixed_precision
        if not self.initialized:
            if not _from_accelerator and not PartialState._shared_state:  # noqa: SLF001
                raise ValueError(
                    "make an Accelerator first: AcceleratorState holds what it decided."
                )
            source, chosen = "mixed_precision", asked
            if asked is None:
                source, chosen = find_setting("MIXED_PRECISION") or (source, "no")
            precision = PrecisionType.parse(source, chosen)
            partial = PartialState(cpu, **kwargs)
            self._shared_state["_mixed_precision"] = precision.value
            self._shared_state["_partial"] = partial
            return
        PartialState(cpu, **kwargs)
        if asked is not None:
            precision = PrecisionType.parse("mixed_precision", asked)
            if precision.value != self.mixed_precision:
                raise ValueError(
                    f"mixed_precision={precision.value!r}, but an Accelerator of this process "
                    f"already uses {self.mixed_precision!r}: make one Accelerator and pass it on, or "
                    "leave mixed_precision out of the second."
                )

    def __getattr__(self, name: str) -> Any:
        partial = self._shared_state.get("_partial")
        if partial is None or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(partial, name)

    def __repr__(self) -> str:
        return f"{self._shared_state.get('_partial')!r}, mixed_precision={self.mixed_precision!r}"

    @classmethod
    def _reset_state(cls, reset_partial_state: bool = False) -> None:
        """Forget everything, for tests."""
        AcceleratorState._shared_state.clear()
        if reset_partial_state:
            PartialState._reset_state()  # noqa: SLF001

    @property
    def initialized(self) -> bool:
        """Whether the state has been made."""
        return "_partial" in self._shared_state

    @property
    def mixed_precision(self) -> str:
        """The precision in force."""
        return str(self._shared_state["_mixed_precision"])


class GradientState:
    """Where the loop stands: does this micro-batch synchronise, is it the loader's last one.

    Args:
        gradient_accumulation_plugin: How gradients are accumulated; None: as set before.

    Attributes:
        sync_gradients: Whether this micro-batch ends an accumulation window.
        plugin_kwargs: The accumulation's settings by name.
        active_dataloader: The innermost loader being iterated; None outside of loops.
    """

    _shared_state: ClassVar[dict[str, Any]] = {}

    sync_gradients: bool
    plugin_kwargs: dict[str, Any]
    active_dataloader: Any
    dataloader_references: list[Any]

    def __init__(
        self, gradient_accumulation_plugin: GradientAccumulationPlugin | None = None
    ) -> None:
        self.__dict__ = self._shared_state
        if not self.initialized:
            self._shared_state.update(
                sync_gradients=True,
                active_dataloader=None,
                dataloader_references=[],
                is_xla_gradients_synced=False,
            )
            self._configure(gradient_accumulation_plugin or GradientAccumulationPlugin())
        elif gradient_accumulation_plugin is not None:
            self._configure(gradient_accumulation_plugin)

    def _configure(self, plugin: GradientAccumulationPlugin) -> None:
        self.plugin_kwargs = {
            "num_steps": plugin.num_steps or 1,
            "adjust_scheduler": plugin.adjust_scheduler,
            "sync_with_dataloader": plugin.sync_with_dataloader,
            "sync_each_batch": plugin.sync_each_batch,
        }

    @classmethod
    def _reset_state(cls) -> None:
        """Forget everything, for tests."""
        GradientState._shared_state.clear()

    @property
    def initialized(self) -> bool:
        """Whether the state has been made."""
        return "sync_gradients" in self._shared_state

    @property
    def num_steps(self) -> int:
        """Micro-batches an optimizer step."""
        return int(self.plugin_kwargs["num_steps"])

    @property
    def adjust_scheduler(self) -> bool:
        """Whether a scheduler's count takes accumulating steps in."""
        return bool(self.plugin_kwargs["adjust_scheduler"])

    @property
    def sync_with_dataloader(self) -> bool:
        """Whether a loader's last batch ends the window."""
        return bool(self.plugin_kwargs["sync_with_dataloader"])

    @property
    def sync_each_batch(self) -> bool:
        """Whether gradients are exchanged at every micro-batch."""
        return bool(self.plugin_kwargs["sync_each_batch"])

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the active loader has given its last batch; False outside of loops."""
        active = self.active_dataloader
        return False if active is None else bool(active.end_of_dataloader)

    @property
    def remainder(self) -> int:
        """Number of real samples in the active loader's last global batch; -1 outside of loops."""
        active = self.active_dataloader
        return -1 if active is None else int(active.remainder)

    @property
    def in_dataloader(self) -> bool:
        """Whether a prepared loader is being iterated."""
        return self.active_dataloader is not None

    def _set_sync_gradients(self, sync_gradients: bool) -> None:
        self.sync_gradients = sync_gradients

    def _add_dataloader(self, dataloader: Any) -> None:
        """Make a loader the innermost one."""
        self.dataloader_references.append(dataloader)
        self.active_dataloader = dataloader

    def _remove_dataloader(self, dataloader: Any) -> None:
        """Take a loader out, wherever it stands; the innermost of the others is active again."""
        for index in range(len(self.dataloader_references) - 1, -1, -1):
            if self.dataloader_references[index] is dataloader:
                del self.dataloader_references[index]
                break
        references = self.dataloader_references
        self.active_dataloader = references[-1] if references else None


def wait_for_everyone() -> None:
    """Wait until every process has come here."""
    PartialState().wait_for_everyone()
