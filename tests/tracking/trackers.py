"""Trackers for tests: one that keeps what it is given, and some that misbehave on purpose.

No torch here: processes that only track import this file and start fast.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rankzero.tracking.adapter import Adapter, MissingPackage
from rankzero.tracking.tail import Entry

SECONDS = 30.0


class Memory(Adapter):
    """Keeps everything, and leaves ``<name>.json`` with its end in the run's folder."""

    name = "memory"
    package = "json"
    install = "memory-tracker"
    init_options = ("colour",)
    log_options = ("shade",)
    made: ClassVar[list[Memory]] = []

    def __init__(self, run: Any, options: Mapping[str, Any]) -> None:
        super().__init__(run, options)
        self.entries: list[Entry] = []
        self.configs: list[dict[str, Any]] = []
        self.ends: list[tuple[str, str | None]] = []
        self.flushes = 0
        self._native: object = None
        self._changed = threading.Condition()
        Memory.made.append(self)

    def open(self) -> None:
        self._native = self

    @property
    def native(self) -> Any:
        return self._native

    def configure(self, config: Mapping[str, Any]) -> None:
        self.configs.append(dict(config))

    def write(self, entries: Sequence[Entry]) -> None:
        with self._changed:
            self.entries.extend(entries)
            self._changed.notify_all()

    def flush(self) -> None:
        self.flushes += 1

    def close(self, status: str, error: str | None) -> None:
        self.ends.append((status, error))
        told = {"status": status, "error": error, "entries": len(self.entries)}
        if self.run.folder.exists():
            (self.run.folder / f"{self.name}.json").write_text(json.dumps(told))

    def shout(self, text: str) -> str:
        """Stand for what a tracker's own object can do."""
        return text.upper()

    def steps(self) -> list[int]:
        return [entry.step for entry in self.entries]

    def wait_until(self, reached: Callable[[list[Entry]], bool]) -> None:
        """Return once ``reached(entries)``."""
        with self._changed:
            assert self._changed.wait_for(lambda: reached(self.entries), SECONDS), self.entries


class Second(Memory):
    """A healthy tracker beside the one that misbehaves."""

    name = "second"


class Gated(Memory):
    """Waits in the methods named in ``closed`` until ``gate`` is set."""

    name = "gated"
    gate: ClassVar[threading.Event] = threading.Event()
    arrived: ClassVar[threading.Event] = threading.Event()
    closed: ClassVar[tuple[str, ...]] = ("write",)

    def _pass(self, method: str) -> None:
        if method in self.closed:
            Gated.arrived.set()
            Gated.gate.wait()

    def open(self) -> None:
        self._pass("open")
        super().open()

    def configure(self, config: Mapping[str, Any]) -> None:
        self._pass("configure")
        super().configure(config)

    def write(self, entries: Sequence[Entry]) -> None:
        self._pass("write")
        super().write(entries)

    def flush(self) -> None:
        self._pass("flush")
        super().flush()

    def close(self, status: str, error: str | None) -> None:
        self._pass("close")
        super().close(status, error)


class Faulty(Memory):
    """Raises in every third call, whichever it is."""

    name = "faulty"

    def __init__(self, run: Any, options: Mapping[str, Any]) -> None:
        super().__init__(run, options)
        self.calls = 0
        self.raised = 0

    def _count(self) -> None:
        self.calls += 1
        if self.calls % 3 == 0:
            self.raised += 1
            raise ConnectionError(f"call {self.calls}\nis refused")

    def open(self) -> None:
        self._count()
        super().open()

    def configure(self, config: Mapping[str, Any]) -> None:
        self._count()
        super().configure(config)

    def write(self, entries: Sequence[Entry]) -> None:
        self._count()
        super().write(entries)

    def flush(self) -> None:
        self._count()
        super().flush()

    def close(self, status: str, error: str | None) -> None:
        self._count()
        super().close(status, error)


class Uninstalled(Memory):
    """Its library is not there."""

    name = "uninstalled"
    package = "rankzero_no_such_library"
    install = "no-such-library"

    def open(self) -> None:
        raise MissingPackage("No module named 'rankzero_no_such_library'")


ROWS = {
    tracker.name: f"tests.tracking.trackers:{tracker.__name__}"
    for tracker in (Memory, Second, Gated, Faulty, Uninstalled)
}
