"""An optimizer that acts on synchronising steps only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rankzero.distributed.state import GradientState
from rankzero.training.precision import LossScaler


class AcceleratedOptimizer(torch.optim.Optimizer):
    """The user's optimizer, whose ``step`` and ``zero_grad`` do nothing on accumulating steps.

    Args:
        optimizer: The optimizer to drive. Everything not named here is its own.
        device_placement: Move state that it has already to its parameters' device.
        scaler: The loss scale of fp16, or None.
    """

    def __init__(  # does not call super().__init__: the state is the wrapped optimizer's
        self,
        optimizer: torch.optim.Optimizer,
        device_placement: bool = True,
        scaler: LossScaler | torch.amp.GradScaler | None = None,
    ) -> None:
        self.optimizer = optimizer
        self.scaler = _shared(scaler)
        self.gradient_state = GradientState()
        self.device_placement = device_placement
        self._step_was_skipped = False
        self._happened = False
        if device_placement and optimizer.state:
            optimizer.load_state_dict(optimizer.state_dict())
        if self.scaler is not None:
            self.scaler.register(optimizer)
            optimizer.register_step_post_hook(self._note_step)

    def _note_step(self, *_: Any) -> None:
        self._happened = True

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state by parameter."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        self.optimizer.state = state

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's parameter groups."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, param_groups: list[dict[str, Any]]) -> None:
        self.optimizer.param_groups = param_groups

    @property
    def defaults(self) -> dict[str, Any]:
        """The wrapped optimizer's default settings."""
        return self.optimizer.defaults

    @defaults.setter
    def defaults(self, defaults: dict[str, Any]) -> None:
        self.optimizer.defaults = defaults

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer."""
        self.optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state, as it would without rankzero."""
        return self.optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped optimizer's state."""
        self.optimizer.load_state_dict(state_dict)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear gradients, on a synchronising step."""
        if self.gradient_state.sync_gradients:
            self.optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters, on a synchronising step.

        Returns:
            What the wrapped optimizer's step returns; None where no step was taken.
        """
        if not self.gradient_state.sync_gradients:
            return None
        if self.scaler is None:
            return self.optimizer.step() if closure is None else self.optimizer.step(closure)
        self._happened = False
        result = self.scaler.step(self.optimizer, closure)
        self._step_was_skipped = not self._happened
        return result

    @property
    def step_was_skipped(self) -> bool:
        """Whether the last step was left out because a scaled gradient was infinite or NaN."""
        return self._step_was_skipped

    def train(self) -> Any:
        """Put an optimizer that has modes (schedule-free ones) into training mode."""
        mode = getattr(self.optimizer, "train", None)
        return mode() if callable(mode) else None

    def eval(self) -> Any:
        """Put an optimizer that has modes (schedule-free ones) into evaluation mode."""
        mode = getattr(self.optimizer, "eval", None)
        return mode() if callable(mode) else None

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # not set yet: copying and unpickling look before __init__
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.optimizer!r})"


def _shared(scaler: LossScaler | torch.amp.GradScaler | None) -> LossScaler | None:
    """Return the scaler as one that optimizers may share."""
    if scaler is None or isinstance(scaler, LossScaler):
        return scaler
    return LossScaler(scaler)
