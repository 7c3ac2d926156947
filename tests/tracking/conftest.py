"""Fixtures of the tracking tests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankzero.tracking import Hub, registry
from tests.tracking import trackers


@pytest.fixture(autouse=True)
def trackers_of_tests(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the trackers for tests; let go of those that wait when the test is over."""
    for name, row in trackers.ROWS.items():
        monkeypatch.setitem(registry.ADAPTERS, name, row)
    monkeypatch.setattr(trackers.Gated, "gate", threading.Event())
    monkeypatch.setattr(trackers.Gated, "arrived", threading.Event())
    monkeypatch.setattr(trackers.Gated, "closed", ("write",))
    trackers.Memory.made.clear()
    yield
    trackers.Gated.gate.set()


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[Callable[..., Hub]]:
    """Return a function that makes hubs which write under the test's folder and are ended with it."""
    hubs: list[Hub] = []

    def make(log_with: Any = "memory", **options: Any) -> Hub:
        hub = Hub(log_with, **{"logging_dir": tmp_path / "runs", **options})
        hubs.append(hub)
        return hub

    yield make
    trackers.Gated.gate.set()
    for hub in hubs:
        hub.end()


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return a function that returns the warnings that tracking has given."""

    def given() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.name == "rankzero.tracking" and record.levelno >= logging.WARNING
        ]

    return given
