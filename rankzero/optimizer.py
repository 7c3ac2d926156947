"""The name under which scripts import the prepared optimizer's class."""

from rankzero.training.optimizer import AcceleratedOptimizer

__all__ = ["AcceleratedOptimizer"]
