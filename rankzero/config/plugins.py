"""The settings objects that scripts pass to ``Accelerator``, as plain dataclasses."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import Any

from rankzero.config.enums import DDPCommunicationHookType


@dataclass
class KwargsHandler:
    """Base of the objects that ``Accelerator(kwargs_handlers=[...])`` takes, one of each class."""

    def to_kwargs(self) -> dict[str, Any]:
        """Return the fields whose value differs from the default."""
        default = type(self)()
        return {
            f.name: getattr(self, f.name)
            for f in fields(self)
            if getattr(self, f.name) != getattr(default, f.name)
        }


@dataclass
class AutocastKwargs(KwargsHandler):
    """How ``torch.autocast`` is entered.

    Attributes:
        enabled: False runs the region in the tensors' own types.
        cache_enabled: Keep the cast weights for the length of the region; None: torch's default.
    """

    enabled: bool = True
    cache_enabled: bool | None = None


@dataclass
class DistributedDataParallelKwargs(KwargsHandler):
    """Arguments of ``torch.nn.parallel.DistributedDataParallel``, under their names there.

    ``comm_hook``, ``comm_wrapper`` and ``comm_state_option`` choose gradient compression.
    """

    dim: int = 0
    broadcast_buffers: bool = True
    bucket_cap_mb: int = 25
    find_unused_parameters: bool = False
    check_reduction: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    comm_hook: DDPCommunicationHookType | str = DDPCommunicationHookType.NO
    comm_wrapper: DDPCommunicationHookType | str = DDPCommunicationHookType.NO
    comm_state_option: dict[str, Any] = field(default_factory=dict)

    def to_kwargs(self) -> dict[str, Any]:
        """Return what the constructor of DistributedDataParallel takes, without the hooks."""
        hooks = {"comm_hook", "comm_wrapper", "comm_state_option"}
        return {name: value for name, value in super().to_kwargs().items() if name not in hooks}


@dataclass
class GradScalerKwargs(KwargsHandler):
    """Arguments of ``torch.amp.GradScaler``: the loss scale of fp16 and how it moves."""

    init_scale: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000
    enabled: bool = True


@dataclass
class InitProcessGroupKwargs(KwargsHandler):
    """Arguments of ``torch.distributed.init_process_group``.

    Attributes:
        backend: None or "nccl" (the field's usual default): the backend that fits the device.
        init_method: A URL, where the environment's address is not to be used.
        timeout: How long a collective may wait; None: torch's default for the backend.
    """

    backend: str | None = "nccl"
    init_method: str | None = None
    timeout: timedelta | None = None


@dataclass
class DataLoaderConfiguration:
    """How loaders are divided between ranks.

    Attributes:
        split_batches: The loader's batch is the total over ranks and is cut into equal parts; else
            each rank gets whole batches of the loader's size.
        dispatch_batches: The main process reads and hands out; None: only where it must be.
        even_batches: Repeat samples so that all ranks have equally many full batches.
        use_seedable_sampler: Shuffle from (data_seed, epoch) alone.
        data_seed: Seed of the shuffle; None: the seed in force when the loader is prepared.
        non_blocking: Copy to the device without waiting (needs pinned memory to have an effect).
        use_stateful_dataloader: Use torchdata's StatefulDataLoader.
    """

    split_batches: bool = False
    dispatch_batches: bool | None = None
    even_batches: bool = True
    use_seedable_sampler: bool = False
    data_seed: int | None = None
    non_blocking: bool = False
    use_stateful_dataloader: bool = False


@dataclass
class ProjectConfiguration:
    """Where a project's files go.

    Attributes:
        project_dir: Folder of checkpoints and, unless ``logging_dir`` says otherwise, of runs.
        logging_dir: Folder of runs; None: ``project_dir``.
        automatic_checkpoint_naming: Name checkpoints ``checkpoints/checkpoint_<n>``.
        total_limit: Number of checkpoints to keep; None: all.
        iteration: Number of the next checkpoint.
        save_on_each_node: Write on the first rank of each node, for nodes without a shared disk.
    """

    project_dir: str | os.PathLike[str] | None = None
    logging_dir: str | os.PathLike[str] | None = None
    automatic_checkpoint_naming: bool = False
    total_limit: int | None = None
    iteration: int = 0
    save_on_each_node: bool = False

    def __post_init__(self) -> None:
        self.set_directories(self.project_dir)

    def set_directories(self, project_dir: str | os.PathLike[str] | None = None) -> None:
        """Set ``project_dir``, and ``logging_dir`` too where it was left open."""
        self.project_dir = project_dir
        if self.logging_dir is None:
            self.logging_dir = project_dir


@dataclass
class GradientAccumulationPlugin(KwargsHandler):
    """How gradients are accumulated.

    Attributes:
        num_steps: Number of micro-batches an optimizer step.
        adjust_scheduler: A prepared scheduler moves only with the optimizer.
        sync_with_dataloader: The last batch of a loader always ends the accumulation.
        sync_each_batch: Exchange gradients at every micro-batch (less memory under sharded
            engines); optimizer steps stay where they are.
    """

    num_steps: int | None = None
    adjust_scheduler: bool = True
    sync_with_dataloader: bool = True
    sync_each_batch: bool = False

    def __post_init__(self) -> None:
        if self.num_steps is not None and (
            isinstance(self.num_steps, bool)
            or not isinstance(self.num_steps, int)
            or self.num_steps < 1
        ):
            raise ValueError(
                f"num_steps={self.num_steps!r}: gradient accumulation takes a whole number of at least 1."
            )
