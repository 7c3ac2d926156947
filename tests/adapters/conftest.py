"""Fixtures of the adapter tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero.tracking import Hub


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    """Return a function that starts TensorBoard runs under the test's folder, ended with it."""
    hubs: list[Hub] = []

    def make(config: Any = None, init_kwargs: Any = None) -> Hub:
        hub = Hub("tensorboard", logging_dir=tmp_path / "runs")
        hubs.append(hub)
        hub.init_trackers("p", config=config, init_kwargs=init_kwargs)
        return hub

    yield make
    for hub in hubs:
        hub.end()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that returns the warnings that tracking has given."""
    return lambda: [r.getMessage() for r in caplog.records if r.name == "rankzero.tracking"]
