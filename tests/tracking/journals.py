"""Journals for tests, and exact comparison of what they hold."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankzero.tracking import frames
from rankzero.tracking.journal import JournalWriter
from rankzero.tracking.notices import Notices
from rankzero.tracking.tail import Entry, Event, JournalTail

LONG = "ЖZR\x00" * 40
MIXED: list[dict[str, Any]] = [
    {"loss": 0.1, "n": 1, "ok": True},
    {"loss": float("nan"), "n": -(1 << 63), "ok": False},
    {"note": "ZR " + LONG, "gone": None, "huge": 1 << 200},
    {"loss": float("-inf"), "n": 2, "ok": True},
    {"accuracy": -0.0},
    {"loss": 0.3, "n": 3, "ok": True},
    {"note": "", "accuracy": 0.5},
    {"accuracy": 5e-324},
]


def write(journal: JournalWriter, calls: Sequence[dict[str, Any]], first_step: int = 0) -> None:
    """Record calls as a run does, the usual way first."""
    for step, values in enumerate(calls, first_step):
        if not journal.write_numbers(values, step, 1e9 + step):
            journal.write_call(tuple(values), tuple(values.values()), step, True, 1e9 + step)


def write_run(path: Path, calls: Sequence[dict[str, Any]]) -> None:
    """Write the journal of a whole run: start, settings, calls, end."""
    journal = JournalWriter(path, Notices())
    journal.write_json(frames.START, {"id": "r", "name": "r", "project": "p"})
    journal.write_json(frames.CONFIG, {"lr": 0.1})
    write(journal, calls)
    journal.write_json(frames.END, {"status": "finished", "error": None, "time": 1e9})
    journal.close()


def read_all(path: Path, offset: int = 0) -> tuple[list[Entry], list[Event], int]:
    """Return a journal's entries, its events, and the number of damaged stretches."""
    tail = JournalTail(path, offset)
    entries: list[Entry] = []
    events: list[Event] = []
    while records := tail.read(100):
        entries.extend(record for record, _ in records if isinstance(record, Entry))
        events.extend(record for record, _ in records if isinstance(record, Event))
    damaged = tail.damaged + tail.leftover()
    tail.close()
    return entries, events, damaged


def exact(value: Any) -> Any:
    """Return a form of a value that is equal only where type and every bit are."""
    if isinstance(value, float):
        return "float", struct.pack("<d", value)
    return type(value).__name__, value


def same(entry: Entry) -> Any:
    """Return a form of an entry that is equal only where every bit is."""
    return entry._replace(values=tuple(exact(value) for value in entry.values))
