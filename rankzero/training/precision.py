"""Arithmetic types: autocast regions, outputs in fp32, and the loss scale of fp16."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import MethodType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import nn

from rankzero.config.enums import PrecisionType
from rankzero.config.plugins import AutocastKwargs, GradScalerKwargs
from rankzero.distributed.nested import convert_to_fp32

if TYPE_CHECKING:
    from rankzero.distributed.devices import DeviceRow

AUTOCAST_DTYPES = {PrecisionType.BF16: torch.bfloat16, PrecisionType.FP16: torch.float16}


class Precision:
    """The arithmetic of one run: none other than the model's own, bf16, or fp16.

    Args:
        name: "no", "bf16" or "fp16".
        row: The device type, which knows the types that its autocast takes.
        autocast_kwargs: How autocast is entered.
        scaler_kwargs: How the loss scale of fp16 starts and moves.

    Raises:
        NotImplementedError: fp8, which this version does not train in.
        ValueError: the device's autocast does not take the type.
    """

    def __init__(
        self,
        name: str,
        row: DeviceRow,
        autocast_kwargs: AutocastKwargs | None = None,
        scaler_kwargs: GradScalerKwargs | None = None,
    ) -> None:
        self.kind = PrecisionType.parse("mixed_precision", name)
        if self.kind is PrecisionType.FP8:
            raise NotImplementedError(
                "mixed_precision='fp8' is not in this version: write 'bf16', 'fp16' or 'no'."
            )
        self.device_type = row.name
        self.dtype = AUTOCAST_DTYPES.get(self.kind)
        if self.dtype is not None and self.dtype not in row.autocast_dtypes:
            taken = [
                k.value for k, dtype in AUTOCAST_DTYPES.items() if dtype in row.autocast_dtypes
            ]
            raise ValueError(
                f"mixed_precision={self.kind.value!r} is not supported on {row.name}: write "
                + " or ".join(repr(word) for word in [*taken, "no"])
                + "."
            )
        self.autocast_kwargs = autocast_kwargs or AutocastKwargs()
        self.scaler: LossScaler | None = None
        if self.kind is PrecisionType.FP16 and (scaler_kwargs or GradScalerKwargs()).enabled:
            settings = scaler_kwargs or GradScalerKwargs()
            self.scaler = LossScaler(torch.amp.GradScaler(row.name, **settings.to_kwargs()))

    @property
    def scale(self) -> float:
        """What losses are multiplied by, and gradients divided by before the optimizer's step."""
        return 1.0 if self.scaler is None else float(self.scaler.scaler.get_scale())

    def autocast(self, handler: AutocastKwargs | None = None) -> AbstractContextManager[Any]:
        """Return a context in which operations run in this precision."""
        settings = handler or self.autocast_kwargs
        if self.dtype is None or not settings.enabled:
            # An enclosing autocast region has to be switched off where the handler says so.
            if handler is not None and not handler.enabled:
                return torch.autocast(self.device_type, enabled=False)
            return contextlib.nullcontext()
        return torch.autocast(
            self.device_type, dtype=self.dtype, cache_enabled=settings.cache_enabled
        )

    def wrap_forward(self, model: nn.Module) -> nn.Module:
        """Make ``model.forward`` run in this precision and return fp32; return ``model`` itself."""
        if self.dtype is not None and not isinstance(
            model.__dict__.get("forward"), AutocastForward
        ):
            model.__dict__["forward"] = AutocastForward(model, self)
        return model


class AutocastForward:
    """A module's ``forward`` inside autocast, with floating outputs of 16 bits turned into fp32.

    It stands in the module's instance dictionary, where ``nn.Module.__call__`` finds it. It holds
    the module, not a bound method, so that ``copy.deepcopy`` and ``pickle`` of the module give one
    whose ``forward`` uses its own weights.
    """

    def __init__(self, module: nn.Module, precision: Precision) -> None:
        self.module = module
        self.device_type = precision.device_type
        self.dtype = precision.dtype
        self.settings = precision.autocast_kwargs
        self.original = module.__dict__.get("forward")  # one that the user had set on the instance

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The module's own forward, which ``inspect.signature`` and ``help`` look for here."""
        if self.original is not None:
            return cast(Callable[..., Any], self.original)
        return MethodType(type(self.module).forward, self.module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's own forward."""
        with torch.autocast(
            self.device_type,
            dtype=self.dtype,
            enabled=self.settings.enabled,
            cache_enabled=self.settings.cache_enabled,
        ):
            outputs = self.__wrapped__(*args, **kwargs)
        return convert_to_fp32(outputs)

    def remove(self) -> None:
        """Give the module its own forward back."""
        if self.original is None:
            del self.module.__dict__["forward"]
        else:
            self.module.__dict__["forward"] = self.original


def remove_autocast(model: nn.Module) -> nn.Module:
    """Undo ``Precision.wrap_forward``; return ``model``."""
    forward = model.__dict__.get("forward")
    if isinstance(forward, AutocastForward):
        forward.remove()
    return model


class LossScaler:
    """One GradScaler shared by the optimizers of a run: it moves once they have stepped.

    torch asks for one ``update`` after all optimizers' steps. That moment is when every optimizer
    has stepped, or when the next backward pass begins.
    """

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self.scaler = scaler
        self.optimizers: set[int] = set()
        self.unscaled: set[int] = set()
        self.stepped: set[int] = set()

    def register(self, optimizer: torch.optim.Optimizer) -> None:
        """Name an optimizer whose step the update waits for."""
        self.optimizers.add(id(optimizer))

    def backward(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the loss times the scale."""
        if self.stepped:
            self.update()
        return self.scaler.scale(loss)

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the optimizer's gradients by the scale, once a step however often it is called."""
        if id(optimizer) in self.unscaled:
            return
        halves = {
            p.dtype for g in optimizer.param_groups for p in g["params"] if p.grad is not None
        }
        if torch.float16 in halves:
            raise ValueError(
                "mixed_precision='fp16' needs the model's parameters in fp32, and some that are "
                "trained are in fp16: leave out model.half(), or call model.float() before prepare()."
            )
        self.scaler.unscale_(optimizer)
        self.unscaled.add(id(optimizer))

    def step(self, optimizer: torch.optim.Optimizer, closure: Any = None) -> Any:
        """Step unless a gradient is infinite or NaN."""
        if closure is not None:
            raise ValueError(
                "closure: torch's GradScaler takes no closure under mixed_precision='fp16'; call "
                "step() without one, or write mixed_precision='bf16'."
            )
        self.unscale_(optimizer)
        result = self.scaler.step(optimizer)
        self.stepped.add(id(optimizer))
        if self.stepped >= self.optimizers:
            self.update()
        return result

    def update(self) -> None:
        """Move the scale, and begin a new round of steps."""
        self.scaler.update()
        self.stepped.clear()
        self.unscaled.clear()


def unwrap_scaler(scaler: LossScaler | torch.amp.GradScaler | None) -> torch.amp.GradScaler | None:
    """Return torch's scaler."""
    return cast("torch.amp.GradScaler | None", getattr(scaler, "scaler", scaler))
