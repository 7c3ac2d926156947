"""What an engine is: one way of training, behind a few methods.

An engine answers the questions on which ways of training differ: how a model is placed and wrapped,
how it is taken out again, how gradient exchange is held back, how gradients are clipped. Everything
that they share (accumulation, precision, loaders) stays outside. The methods of the base class do
what one process needs, so that an engine overrides only where it differs.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from rankzero.training.optimizer import AcceleratedOptimizer

if TYPE_CHECKING:
    from rankzero.config.plugins import KwargsHandler
    from rankzero.training.precision import LossScaler


class Engine(ABC):
    """One way of training.

    Args:
        device: The device this process computes on.
        num_processes: World size.
        handlers: The user's settings objects by class; an engine picks its own.
    """

    name: ClassVar[str]

    def __init__(
        self,
        device: torch.device,
        num_processes: int,
        handlers: Mapping[type[KwargsHandler], KwargsHandler] | None = None,
    ) -> None:
        self.device = device
        self.num_processes = num_processes
        self.handlers = dict(handlers or {})

    @abstractmethod
    def wrap(self, model: nn.Module) -> nn.Module:
        """Return ``model``, which is in its place already, ready to train with other ranks."""

    def place(self, model: nn.Module) -> nn.Module:
        """Move ``model`` to this process's device."""
        return model.to(self.device)

    def unwrap(self, model: nn.Module) -> nn.Module:
        """Return the module that ``wrap`` was given; any other module as it is."""
        return model

    def prepare_optimizer(
        self, optimizer: torch.optim.Optimizer, device_placement: bool, scaler: LossScaler | None
    ) -> AcceleratedOptimizer:
        """Return the optimizer that acts on synchronising steps only."""
        return AcceleratedOptimizer(optimizer, device_placement=device_placement, scaler=scaler)

    def no_sync(self, model: nn.Module) -> AbstractContextManager[None]:  # noqa: ARG002
        """Return a context in which ``model``'s gradients stay on their rank."""
        return contextlib.nullcontext()

    def backward(self, loss: torch.Tensor, **kwargs: Any) -> None:
        """Compute gradients of ``loss``, a 0-d tensor that is scaled already."""
        loss.backward(**kwargs)

    def clip_grad_norm_(
        self, parameters: Iterable[torch.Tensor], max_norm: float, norm_type: float
    ) -> torch.Tensor:
        """Scale gradients so that their joint norm is at most ``max_norm``; return the norm before.

        Returns:
            A 0-d tensor: the norm over all gradients, as one process would compute it.
        """
        return nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    def grad_norm(self, parameters: Iterable[torch.Tensor], norm_type: float) -> torch.Tensor:
        """Return the joint norm of this rank's gradients, a 0-d tensor; they are left alone."""
        if isinstance(parameters, torch.Tensor):
            parameters = [parameters]
        grads = [p.grad for p in parameters if p.grad is not None]
        return nn.utils.get_total_norm(grads, norm_type)

    def clip_grad_value_(self, parameters: Iterable[torch.Tensor], clip_value: float) -> None:
        """Clamp each element of the gradients to [-clip_value, clip_value]."""
        nn.utils.clip_grad_value_(parameters, clip_value)

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        """Return the full weights of the bare module, without prefixes."""
        return self.unwrap(model).state_dict()
