"""The name under which scripts import the shared state."""

from rankzero.config.enums import DistributedType
from rankzero.distributed.state import (
    AcceleratorState,
    GradientState,
    PartialState,
    is_initialized,
)

__all__ = ["AcceleratorState", "DistributedType", "GradientState", "PartialState", "is_initialized"]
