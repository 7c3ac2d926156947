"""One process on one device: nothing to wrap, nobody to wait for."""

from __future__ import annotations

from typing import ClassVar

from torch import nn

from rankzero.training.engines.base import Engine


class SingleEngine(Engine):
    """Train in one process."""

    name: ClassVar[str] = "single"

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return ``model`` itself."""
        return model
