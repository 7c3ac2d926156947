"""A learning rate scheduler that moves with its optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankzero.distributed.state import GradientState, PartialState
from rankzero.training.optimizer import AcceleratedOptimizer


class AcceleratedScheduler:
    """The user's scheduler, stepped once for each optimizer step that happened.

    Schedules are written for the loop of one process, which takes ``num_processes`` times as many
    steps an epoch. So each optimizer step moves the schedule by ``num_processes``, unless batches
    are split, when the number of steps is that of one process.

    Args:
        scheduler: Any object with ``step``; everything not named here is its own.
        optimizers: The prepared optimizers that it follows.
        step_with_optimizer: False: each call of ``step`` moves it, whatever the optimizer does.
        split_batches: Whether one loader batch is divided between the ranks.
    """

    def __init__(
        self,
        scheduler: Any,
        optimizers: AcceleratedOptimizer | Sequence[AcceleratedOptimizer],
        step_with_optimizer: bool = True,
        split_batches: bool = False,
    ) -> None:
        self.scheduler = scheduler
        one = isinstance(optimizers, AcceleratedOptimizer)
        self.optimizers: list[AcceleratedOptimizer] = [optimizers] if one else list(optimizers)  # type: ignore[list-item]
        self.step_with_optimizer = step_with_optimizer
        self.split_batches = split_batches
        self.gradient_state = GradientState()

    def step(self, *args: Any, **kwargs: Any) -> None:
        """Move the schedule, if the optimizer has stepped."""
        if not self.step_with_optimizer:
            self.scheduler.step(*args, **kwargs)
            return
        if not self.gradient_state.sync_gradients:
            if self.gradient_state.adjust_scheduler and hasattr(self.scheduler, "_step_count"):
                # What torch compares with the optimizer's own count, to warn of a wrong order.
                self.scheduler._step_count += 1  # noqa: SLF001
            return
        if any(optimizer.step_was_skipped for optimizer in self.optimizers):
            return
        moves = 1 if self.split_batches else PartialState().num_processes
        total = getattr(self.scheduler, "total_steps", None)
        for _ in range(moves):
            # OneCycleLR raises when moved past its end; the last optimizer step may reach over it.
            if total is None or self.scheduler.last_epoch < total:
                self.scheduler.step(*args, **kwargs)

    def get_last_lr(self) -> list[float]:
        """Return the learning rate of each parameter group."""
        return list(self.scheduler.get_last_lr())

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped scheduler's state, as it would without rankzero."""
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the wrapped scheduler's state."""
        self.scheduler.load_state_dict(state_dict)

    def get_lr(self) -> Any:
        """Return what the wrapped scheduler computes for its present step."""
        return self.scheduler.get_lr()

    def print_lr(self, *args: Any, **kwargs: Any) -> Any:
        """Print the learning rate, where the wrapped scheduler can."""
        return self.scheduler.print_lr(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "scheduler":  # not set yet: copying and unpickling look before __init__
            raise AttributeError(name)
        return getattr(self.scheduler, name)

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.scheduler!r})"
