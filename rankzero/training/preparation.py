"""``prepare``: each object to the hands that know its kind, in the order that they depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from rankzero.config.plugins import DataLoaderConfiguration
from rankzero.distributed.state import PartialState
from rankzero.training.data.loaders import DataLoaderShard, prepare_data_loader
from rankzero.training.engines.base import Engine
from rankzero.training.optimizer import AcceleratedOptimizer
from rankzero.training.precision import Precision, remove_autocast
from rankzero.training.scheduler import AcceleratedScheduler


def is_scheduler(obj: Any) -> bool:
    """Tell whether ``obj`` is a learning rate scheduler: torch's, or one that looks like it."""
    if isinstance(obj, (torch.optim.lr_scheduler.LRScheduler, AcceleratedScheduler)):
        return True
    if isinstance(obj, torch.optim.lr_scheduler.ReduceLROnPlateau):
        return True
    if isinstance(obj, (torch.optim.Optimizer, nn.Module)):
        return False
    names = ("step", "state_dict", "load_state_dict")
    return isinstance(getattr(obj, "optimizer", None), torch.optim.Optimizer) and all(
        callable(getattr(obj, name, None)) for name in names
    )


class Preparation:
    """Prepares objects for one engine and one precision, and remembers what it prepared.

    Args:
        engine: How models are wrapped.
        precision: What models compute in.
        loader_config: How loaders are divided between ranks.
        device_placement: Whether models and batches are moved to the device.
        step_scheduler_with_optimizer: Whether schedulers follow their optimizers.
        rng_types: The generators brought into step before each epoch; None: the sampler's.
    """

    def __init__(
        self,
        engine: Engine,
        precision: Precision,
        loader_config: DataLoaderConfiguration,
        device_placement: bool = True,
        step_scheduler_with_optimizer: bool = True,
        rng_types: Sequence[Any] | None = None,
    ) -> None:
        self.engine = engine
        self.precision = precision
        self.loader_config = loader_config
        self.device_placement = device_placement
        self.step_scheduler_with_optimizer = step_scheduler_with_optimizer
        self.rng_types = rng_types
        self.models: list[nn.Module] = []
        self.optimizers: list[AcceleratedOptimizer] = []
        self.schedulers: list[AcceleratedScheduler] = []
        self.loaders: list[Any] = []

    def prepare(self, *objects: Any, device_placement: Sequence[bool | None] | None = None) -> Any:
        """Prepare any mix of objects; return them in the same order, one alone as itself.

        Schedulers come last, since they follow prepared optimizers. What is of no known kind is
        returned unchanged.
        """
        if device_placement is None:
            device_placement = [None] * len(objects)
        elif len(device_placement) != len(objects):
            raise ValueError(
                f"device_placement={list(device_placement)!r} has {len(device_placement)} entries "
                f"for {len(objects)} objects: write one, or None, for each."
            )
        results = [
            obj if is_scheduler(obj) else self._prepare_one(obj, placed)
            for obj, placed in zip(objects, device_placement, strict=True)
        ]
        results = [self.scheduler(obj) if is_scheduler(obj) else obj for obj in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _prepare_one(self, obj: Any, device_placement: bool | None) -> Any:
        if isinstance(obj, DataLoader):
            return self.loader(obj, device_placement)
        if isinstance(obj, nn.Module):
            return self.model(obj, device_placement)
        if isinstance(obj, torch.optim.Optimizer):
            return self.optimizer(obj, device_placement)
        return obj

    def model(
        self,
        model: nn.Module,
        device_placement: bool | None = None,
        evaluation_mode: bool = False,
    ) -> nn.Module:
        """Place, set the precision of, and wrap a model; in evaluation mode it is not wrapped."""
        if any(known is model for known in self.models):
            return model
        if self._places(device_placement):
            model = self.engine.place(model)
        model = self.precision.wrap_forward(model)
        if not evaluation_mode:
            model = self.engine.wrap(model)
        self.models.append(model)
        return model

    def optimizer(
        self, optimizer: torch.optim.Optimizer, device_placement: bool | None = None
    ) -> AcceleratedOptimizer:
        """Wrap an optimizer."""
        if isinstance(optimizer, AcceleratedOptimizer):
            if not any(known is optimizer for known in self.optimizers):
                self.optimizers.append(optimizer)
            return optimizer
        prepared = self.engine.prepare_optimizer(
            optimizer, self._places(device_placement), self.precision.scaler
        )
        self.optimizers.append(prepared)
        return prepared

    def scheduler(self, scheduler: Any) -> AcceleratedScheduler:
        """Wrap a scheduler around the prepared optimizer that it was made for."""
        if isinstance(scheduler, AcceleratedScheduler):
            return scheduler
        made_for = getattr(scheduler, "optimizer", None)
        own = [o for o in self.optimizers if o is made_for or o.optimizer is made_for]
        prepared = AcceleratedScheduler(
            scheduler,
            own or self.optimizers,
            step_with_optimizer=self.step_scheduler_with_optimizer,
            split_batches=self.loader_config.split_batches,
        )
        self.schedulers.append(prepared)
        return prepared

    def loader(
        self,
        loader: DataLoader[Any],
        device_placement: bool | None = None,
        slice_fn_for_dispatch: Any = None,
    ) -> Any:
        """Divide a loader between the ranks, and have its batches brought to the device."""
        if isinstance(loader, DataLoaderShard):
            if not any(known is loader for known in self.loaders):
                self.loaders.append(loader)
            return loader
        state, config = PartialState(), self.loader_config
        prepared = prepare_data_loader(
            loader,
            device=self.engine.device,
            num_processes=state.num_processes,
            process_index=state.process_index,
            split_batches=config.split_batches,
            put_on_device=self._places(device_placement),
            rng_types=self.rng_types,
            dispatch_batches=config.dispatch_batches,
            even_batches=config.even_batches,
            slice_fn_for_dispatch=slice_fn_for_dispatch,
            use_seedable_sampler=config.use_seedable_sampler,
            data_seed=config.data_seed,
            non_blocking=config.non_blocking,
            use_stateful_dataloader=config.use_stateful_dataloader,
        )
        self.loaders.append(prepared)
        return prepared

    def unscale(self, optimizer: Any = None) -> None:
        """Undo the loss scale on the gradients of ``optimizer`` (one, several), or of all."""
        scaler = self.precision.scaler
        if scaler is None:
            return
        if optimizer is None:
            chosen: Sequence[Any] = self.optimizers
        else:
            chosen = optimizer if isinstance(optimizer, (list, tuple)) else [optimizer]
        for one in chosen:
            scaler.unscale_(one.optimizer if isinstance(one, AcceleratedOptimizer) else one)

    def unwrap(
        self, model: nn.Module, keep_fp32_wrapper: bool = True, keep_torch_compile: bool = True
    ) -> nn.Module:
        """Return the bare module inside what ``model`` returned."""
        bare = extract_module(self.engine, model, keep_torch_compile)
        return bare if keep_fp32_wrapper else remove_autocast(bare)

    def _places(self, device_placement: bool | None) -> bool:
        return self.device_placement if device_placement is None else device_placement


def extract_module(engine: Engine, model: nn.Module, keep_torch_compile: bool) -> nn.Module:
    """Take a module out of the engine's wrapper, which torch.compile may stand before or behind."""
    compiled = getattr(model, "_orig_mod", None)
    if isinstance(compiled, nn.Module) and engine.unwrap(compiled) is not compiled:
        bare = engine.unwrap(compiled)
    else:
        bare = engine.unwrap(model)
    if not keep_torch_compile:
        bare = getattr(bare, "_orig_mod", bare)
    return bare
