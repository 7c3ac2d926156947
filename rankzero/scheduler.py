"""The name under which scripts import the prepared scheduler's class."""

from rankzero.training.scheduler import AcceleratedScheduler

__all__ = ["AcceleratedScheduler"]
