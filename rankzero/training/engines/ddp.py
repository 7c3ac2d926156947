"""Whole replicas on each rank, gradients averaged: torch's DistributedDataParallel."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar, cast

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankzero.config.enums import DDPCommunicationHookType
from rankzero.config.plugins import DistributedDataParallelKwargs
from rankzero.training.engines.base import Engine


class DDPEngine(Engine):
    """Train one replica a rank."""

    name: ClassVar[str] = "ddp"

    def wrap(self, model: nn.Module) -> nn.Module:
        """Wrap ``model``; one without trainable parameters exchanges nothing and is returned."""
        if not any(parameter.requires_grad for parameter in model.parameters()):
            return model
        settings = self.handlers.get(DistributedDataParallelKwargs, DistributedDataParallelKwargs())
        settings = cast(DistributedDataParallelKwargs, settings)
        # A device without an index (cpu) must not be listed; one with an index must be.
        device_ids = None if self.device.index is None else [self.device.index]
        wrapped = DistributedDataParallel(model, device_ids=device_ids, **settings.to_kwargs())
        self._register_hook(wrapped, settings)
        return wrapped

    def _register_hook(
        self, model: DistributedDataParallel, settings: DistributedDataParallelKwargs
    ) -> None:
        """Install the gradient compression that the settings ask for."""
        hook = DDPCommunicationHookType.parse("comm_hook", settings.comm_hook)
        wrapper = DDPCommunicationHookType.parse("comm_wrapper", settings.comm_wrapper)
        if hook is DDPCommunicationHookType.NO:
            if wrapper is not DDPCommunicationHookType.NO:
                raise ValueError(
                    f"comm_wrapper={str(wrapper)!r} wraps a communication hook: set comm_hook too."
                )
            return
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

        state: Any = None
        if hook in (DDPCommunicationHookType.POWER_SGD, DDPCommunicationHookType.BATCHED_POWER_SGD):
            state = powerSGD_hook.PowerSGDState(None, **settings.comm_state_option)
        elif settings.comm_state_option:
            raise ValueError(
                f"comm_state_option={settings.comm_state_option!r} is for power_sgd and "
                f"batched_power_sgd; comm_hook={str(hook)!r} has no options."
            )
        functions: dict[DDPCommunicationHookType, Any] = {
            DDPCommunicationHookType.FP16: default_hooks.fp16_compress_hook,
            DDPCommunicationHookType.BF16: default_hooks.bf16_compress_hook,
            DDPCommunicationHookType.POWER_SGD: powerSGD_hook.powerSGD_hook,
            DDPCommunicationHookType.BATCHED_POWER_SGD: powerSGD_hook.batched_powerSGD_hook,
        }
        wrappers: dict[DDPCommunicationHookType, Any] = {
            DDPCommunicationHookType.NO: lambda function: function,
            DDPCommunicationHookType.FP16: default_hooks.fp16_compress_wrapper,
            DDPCommunicationHookType.BF16: default_hooks.bf16_compress_wrapper,
        }
        if wrapper not in wrappers:
            raise ValueError(f"comm_wrapper={str(wrapper)!r}: write 'no', 'fp16' or 'bf16'.")
        model.register_comm_hook(state, wrappers[wrapper](functions[hook]))

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the module inside DistributedDataParallel."""
        return (
            cast(nn.Module, model.module) if isinstance(model, DistributedDataParallel) else model
        )

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:
        """Hold back the gradient exchange of ``model``'s forward and backward passes."""
        if isinstance(model, DistributedDataParallel):
            return cast(AbstractContextManager[None], model.no_sync())
        return super().no_sync(model)
