"""``Accelerator``: a table of contents. Each method hands on to the part that does the work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from rankzero import arguments
from rankzero.checkpointing import files
from rankzero.config.enums import DistributedType
from rankzero.config.plugins import (
    AutocastKwargs,
    DataLoaderConfiguration,
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    KwargsHandler,
    ProjectConfiguration,
)
from rankzero.distributed import collectives
from rankzero.distributed.state import AcceleratorState, GradientState, PartialState
from rankzero.tracking.hub import Hub
from rankzero.training.accumulation import Accumulation
from rankzero.training.data.metrics import gather_for_metrics
from rankzero.training.engines import engine_class
from rankzero.training.precision import Precision, unwrap_scaler
from rankzero.training.preparation import Preparation


class Accelerator:
    """Everything that a training loop needs to run on any number of processes.

    Args:
        device_placement: Move models and batches to this process's device.
        split_batches: Older spelling of the field of ``dataloader_config``.
        mixed_precision: "no", "bf16" or "fp16"; None: what the launcher set, else "no".
        gradient_accumulation_steps: Micro-batches an optimizer step; left at 1, what the launcher
            set is used.
        cpu: Stay on the CPU.
        dataloader_config: How loaders are divided between ranks.
        rng_types: Generators brought into step at each epoch; None: the sampler's.
        log_with: A tracker's name, or a list of them; None: nothing is recorded.
        project_dir: Folder under which runs are recorded.
        project_config: The same and more, as one object.
        gradient_accumulation_plugin: Accumulation in full, instead of the number of steps.
        step_scheduler_with_optimizer: False: prepared schedulers move at each call of ``step``.
        kwargs_handlers: Settings objects (AutocastKwargs, DistributedDataParallelKwargs,
            GradScalerKwargs, InitProcessGroupKwargs), one of a class.
        later: Arguments of Accelerate that this version does not act on: each raises unless unset.

    Raises:
        TypeError: an argument of the wrong kind.
        ValueError: a value that is not known, settings that contradict each other, or another
            ``mixed_precision`` or ``cpu`` than that of an Accelerator made before in the process.
        NotImplementedError: an argument, or a variable that a launcher has set, that this version
            does not act on.
    """

    def __init__(
        self,
        device_placement: bool = True,
        split_batches: bool | None = None,
        mixed_precision: str | None = None,
        gradient_accumulation_steps: int = 1,
        cpu: bool = False,
        dataloader_config: DataLoaderConfiguration | None = None,
        deepspeed_plugin: Any = None,
        fsdp_plugin: Any = None,
        torch_tp_plugin: Any = None,
        megatron_lm_plugin: Any = None,
        rng_types: Sequence[Any] | None = None,
        log_with: Any = None,
        project_dir: Any = None,
        project_config: ProjectConfiguration | None = None,
        gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
        step_scheduler_with_optimizer: bool = True,
        kwargs_handlers: Sequence[KwargsHandler] | None = None,
        dynamo_backend: Any = None,
        dynamo_plugin: Any = None,
        deepspeed_plugins: Any = None,
        parallelism_config: Any = None,
    ) -> None:
        arguments.refuse_later_arguments(
            deepspeed_plugin=deepspeed_plugin,
            fsdp_plugin=fsdp_plugin,
            torch_tp_plugin=torch_tp_plugin,
            megatron_lm_plugin=megatron_lm_plugin,
            dynamo_backend=dynamo_backend,
            dynamo_plugin=dynamo_plugin,
            deepspeed_plugins=deepspeed_plugins,
            parallelism_config=parallelism_config,
        )
        arguments.refuse_later_settings()
        arguments.check_generators(rng_types)
        handlers = arguments.handlers_by_class(kwargs_handlers)
        self.ddp_handler = handlers.get(DistributedDataParallelKwargs)
        self.scaler_handler = handlers.get(GradScalerKwargs)
        self.init_handler = handlers.get(InitProcessGroupKwargs)
        self.autocast_handler = handlers.get(AutocastKwargs)
        self.profile_handler = None
        self.fp8_recipe_handler = None

        self.project_configuration = arguments.project_configuration(project_dir, project_config)
        self.dataloader_config = arguments.loader_configuration(split_batches, dataloader_config)
        accumulation = arguments.accumulation_plugin(
            gradient_accumulation_steps, gradient_accumulation_plugin
        )
        init_kwargs = {} if self.init_handler is None else self.init_handler.to_kwargs()
        self.state = AcceleratorState(
            mixed_precision=mixed_precision, cpu=cpu, _from_accelerator=True, **init_kwargs
        )
        self._ranks = PartialState()
        self.gradient_state = GradientState(gradient_accumulation_plugin=accumulation)
        self.device_placement = device_placement
        self.rng_types = rng_types
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer
        self.log_with = log_with
        self._precision = Precision(
            self.state.mixed_precision,
            self._ranks.device_row,
            self.autocast_handler,
            self.scaler_handler,
        )
        self.native_amp = self._precision.dtype is not None
        engine = engine_class(self._ranks.distributed_type)
        self._engine = engine(self._ranks.device, self._ranks.num_processes, handlers)
        self._accumulation = Accumulation(self._engine, self.gradient_state)
        self._preparation = Preparation(
            self._engine,
            self._precision,
            self.dataloader_config,
            device_placement=device_placement,
            step_scheduler_with_optimizer=step_scheduler_with_optimizer,
            rng_types=rng_types,
        )
        self._hub = Hub(
            log_with,
            logging_dir=self.logging_dir,
            rank=self.process_index,
            world_size=self.num_processes,
            launch_id=self._ranks.launch_id,
        )

    # Who am I, who else is there

    @property
    def device(self) -> torch.device:
        """The device this process computes on."""
        return self._ranks.device

    @property
    def distributed_type(self) -> DistributedType:
        """How processes work together."""
        return self._ranks.distributed_type

    @property
    def num_processes(self) -> int:
        """World size."""
        return self._ranks.num_processes

    @property
    def process_index(self) -> int:
        """Global rank."""
        return self._ranks.process_index

    @property
    def local_process_index(self) -> int:
        """Rank inside the node."""
        return self._ranks.local_process_index

    @property
    def is_main_process(self) -> bool:
        """Whether this is global rank 0."""
        return self._ranks.is_main_process

    @property
    def is_local_main_process(self) -> bool:
        """Whether this is the first rank of its node."""
        return self._ranks.is_local_main_process

    @property
    def is_last_process(self) -> bool:
        """Whether this is the highest rank."""
        return self._ranks.is_last_process

    @property
    def use_distributed(self) -> bool:
        """Whether there is more than one process."""
        return self._ranks.use_distributed

    @property
    def multi_device(self) -> bool:
        """Whether several processes each train a whole replica."""
        return self.use_distributed

    # What is set

    @property
    def mixed_precision(self) -> str:
        """The precision in force: "no", "bf16" or "fp16"."""
        return self.state.mixed_precision

    @property
    def split_batches(self) -> bool:
        """Whether one loader batch is divided between the ranks."""
        return self.dataloader_config.split_batches

    @property
    def dispatch_batches(self) -> bool | None:
        """Whether the main process reads for all."""
        return self.dataloader_config.dispatch_batches

    @property
    def even_batches(self) -> bool:
        """Whether samples are repeated so that all ranks have equally many."""
        return self.dataloader_config.even_batches

    @even_batches.setter
    def even_batches(self, even_batches: bool) -> None:
        self.dataloader_config.even_batches = even_batches

    @property
    def use_seedable_sampler(self) -> bool:
        """Whether shuffles follow from a seed and the epoch alone."""
        return self.dataloader_config.use_seedable_sampler

    @property
    def non_blocking(self) -> bool:
        """Whether copies to the device are not waited for."""
        return self.dataloader_config.non_blocking

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether torchdata's StatefulDataLoader is used."""
        return self.dataloader_config.use_stateful_dataloader

    @property
    def project_dir(self) -> Any:
        """Folder of the project."""
        return self.project_configuration.project_dir

    @property
    def logging_dir(self) -> Any:
        """Folder of runs; None: ``runs`` in the current folder."""
        return self.project_configuration.logging_dir

    @property
    def save_iteration(self) -> int:
        """Number of the next checkpoint."""
        return int(self.project_configuration.iteration)

    # Process control

    def wait_for_everyone(self) -> None:
        """Wait until every process has come here."""
        self._ranks.wait_for_everyone()

    def print(self, *args: Any, **kwargs: Any) -> None:
        """Print once a node."""
        self._ranks.print(*args, **kwargs)

    def on_main_process(self, function: Callable[..., Any] | None = None) -> Any:
        """Decorate a function to run on global rank 0 only; it returns None elsewhere."""
        return self._ranks.on_main_process(function)

    def on_local_main_process(self, function: Callable[..., Any] | None = None) -> Any:
        """Decorate a function to run on the first rank of each node only."""
        return self._ranks.on_local_main_process(function)

    def on_last_process(self, function: Callable[..., Any]) -> Any:
        """Decorate a function to run on the highest rank only."""
        return self._ranks.on_last_process(function)

    def on_process(
        self, function: Callable[..., Any] | None = None, process_index: int | None = None
    ) -> Any:
        """Decorate a function to run on one rank only."""
        return self._ranks.on_process(function, process_index=process_index)

    def on_local_process(
        self, function: Callable[..., Any] | None = None, local_process_index: int | None = None
    ) -> Any:
        """Decorate a function to run on one rank of each node only."""
        return self._ranks.on_local_process(function, local_process_index=local_process_index)

    def main_process_first(self) -> AbstractContextManager[None]:
        """Return a context that rank 0 runs before the others do."""
        return self._ranks.main_process_first()

    def local_main_process_first(self) -> AbstractContextManager[None]:
        """Return a context that each node's first rank runs before the others of its node do."""
        return self._ranks.local_main_process_first()

    def split_between_processes(
        self, inputs: Any, apply_padding: bool = False
    ) -> AbstractContextManager[Any]:
        """Return a context that yields this rank's share of ``inputs``."""
        return self._ranks.split_between_processes(inputs, apply_padding=apply_padding)

    # Prepare

    def prepare(self, *args: Any, device_placement: Sequence[bool | None] | None = None) -> Any:
        """Prepare models, optimizers, loaders and schedulers, given and returned in any order."""
        return self._preparation.prepare(*args, device_placement=device_placement)

    def prepare_model(
        self,
        model: nn.Module,
        device_placement: bool | None = None,
        evaluation_mode: bool = False,
    ) -> nn.Module:
        """Prepare one model; in evaluation mode it exchanges no gradients."""
        return self._preparation.model(model, device_placement, evaluation_mode)

    def prepare_optimizer(
        self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None
    ) -> Any:
        """Prepare one optimizer."""
        return self._preparation.optimizer(optimizer, device_placement)

    def prepare_data_loader(
        self,
        data_loader: Any,
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Any = None,
    ) -> Any:
        """Prepare one loader."""
        return self._preparation.loader(data_loader, device_placement, slice_fn_for_dispatch)

    def prepare_scheduler(self, scheduler: Any) -> Any:
        """Prepare one learning rate scheduler."""
        return self._preparation.scheduler(scheduler)

    def unwrap_model(
        self, model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> nn.Module:
        """Return the bare module."""
        return self._preparation.unwrap(model, keep_fp32_wrapper, keep_torch_compile)

    # Train

    @property
    def sync_gradients(self) -> bool:
        """Whether this micro-batch ends an accumulation window."""
        return self.gradient_state.sync_gradients

    @sync_gradients.setter
    def sync_gradients(self, sync_gradients: bool) -> None:
        self.gradient_state._set_sync_gradients(sync_gradients)  # noqa: SLF001

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro-batches an optimizer step."""
        return self.gradient_state.num_steps

    @gradient_accumulation_steps.setter
    def gradient_accumulation_steps(self, steps: int) -> None:
        self.gradient_state.plugin_kwargs["num_steps"] = GradientAccumulationPlugin(steps).num_steps

    @property
    def step(self) -> int:
        """Micro-batches since the accumulation window was last cut short."""
        return self._accumulation.step

    @step.setter
    def step(self, step: int) -> None:
        self._accumulation.step = step

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The loss scaler of fp16, else None."""
        return unwrap_scaler(self._precision.scaler)

    @property
    def optimizer_step_was_skipped(self) -> bool:
        """Whether an optimizer's last step was left out for an infinite or NaN gradient."""
        return any(optimizer.step_was_skipped for optimizer in self._preparation.optimizers)

    def accumulate(self, *models: nn.Module) -> AbstractContextManager[None]:
        """Return the context of one micro-batch; with no model named, it is for all prepared."""
        return self._accumulation.window(models or self._preparation.models)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Return a context in which the model's gradients stay on their rank."""
        return self._engine.no_sync(model)

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Compute gradients of ``loss`` divided by the number of accumulation steps."""
        self._accumulation.backward(loss, self._precision.scaler, **kwargs)

    def autocast(
        self, autocast_handler: AutocastKwargs | None = None
    ) -> AbstractContextManager[Any]:
        """Return a context that computes in the precision in force."""
        return self._precision.autocast(autocast_handler)

    def unscale_gradients(self, optimizer: Any = None) -> None:
        """Divide gradients by the loss scale, once a step; nothing without one."""
        self._preparation.unscale(optimizer)

    def clip_grad_norm_(
        self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float = 2
    ) -> torch.Tensor:
        """Clip by the joint norm on a synchronising step.

        On an accumulating step gradients are not complete, and are left alone.

        Returns:
            The norm before clipping, a 0-d tensor; on an accumulating step that of what this rank
            has so far.
        """
        if not self.sync_gradients:
            return self._engine.grad_norm(parameters, norm_type) / self._precision.scale
        self.unscale_gradients()
        return self._engine.clip_grad_norm_(parameters, max_norm, norm_type)

    def clip_grad_value_(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        """Clamp gradients to [-clip_value, clip_value] on a synchronising step."""
        if self.sync_gradients:
            self.unscale_gradients()
            self._engine.clip_grad_value_(parameters, clip_value)

    # Collectives

    def gather(self, tensor: Any) -> Any:
        """Concatenate a structure of tensors over ranks, along dimension 0."""
        return collectives.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """Gather what was computed on one batch, without the samples that evened out the ranks."""
        return gather_for_metrics(input_data, self.gradient_state, use_gather_object)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """Reduce a structure of tensors over ranks."""
        return collectives.reduce(tensor, reduction=reduction, scale=scale)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False
    ) -> Any:
        """Pad tensors along ``dim`` to the longest of all ranks."""
        return collectives.pad_across_processes(
            tensor, dim=dim, pad_index=pad_index, pad_first=pad_first
        )

    # Save

    def save(self, obj: Any, f: Any, safe_serialization: bool = False) -> None:
        """Write ``obj`` to ``f`` once, whole or not at all."""
        files.save(
            obj,
            f,
            save_on_each_node=self.project_configuration.save_on_each_node,
            safe_serialization=safe_serialization,
        )

    def get_state_dict(self, model: nn.Module, unwrap: bool = True) -> dict[str, Any]:
        """Return a model's full weights; with ``unwrap``, under the bare module's names."""
        return self._engine.state_dict(model) if unwrap else model.state_dict()

    # Track

    @property
    def trackers(self) -> list[Any]:
        """The live trackers; inert ones on other ranks."""
        return self._hub.trackers

    def init_trackers(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Start a run; call it on all ranks or on the main process alone."""
        self._hub.init_trackers(project_name, config=config, init_kwargs=init_kwargs)

    def log(
        self,
        values: dict[str, Any],
        step: int | None = None,
        log_kwargs: dict[str, Any] | None = None,
    ) -> None:
        """Record values at a step, on the main process; returns without waiting for a tracker."""
        self._hub.log(values, step, log_kwargs)

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """Return a tracker by name, or with ``unwrap`` its library's own object."""
        return self._hub.get_tracker(name, unwrap=unwrap)

    def end_training(self) -> None:
        """End the run; call it on all ranks or on the main process alone, or not at all."""
        self._hub.end()
