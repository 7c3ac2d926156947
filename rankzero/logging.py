"""The name under which scripts import the rank-aware logger."""

from rankzero.distributed.logging import MultiProcessAdapter, get_logger

__all__ = ["MultiProcessAdapter", "get_logger"]
