"""Reading runs back from their journals, live and damaged ones included."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankzero.tracking import frames
from rankzero.tracking.journal import lock_file
from rankzero.tracking.run import JOURNAL_NAME, RunInfo
from rankzero.tracking.tail import Entry, Event, JournalTail

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator


@dataclass(frozen=True)
class Series:
    """All points of one metric, in the order they were logged.

    Attributes:
        steps: int64, shape (points,).
        times: float64, shape (points,), unix seconds.
        values: float64, shape (points,); whole numbers beyond 2**53 are rounded.
    """

    steps: np.ndarray[Any, np.dtype[np.int64]]
    times: np.ndarray[Any, np.dtype[np.float64]]
    values: np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Text:
    """One piece of text that was logged."""

    step: int
    time: float
    text: str


@dataclass
class RunRecord:
    """A run as its journal tells it.

    Attributes:
        info: Who the run is.
        config: The configuration; empty where there was none.
        status: "running", "finished", "failed", "killed", or "crashed": no end was recorded, and
            the process is gone.
        error: The exception's text where the run failed.
        ended: Unix seconds of the end; of the last record where there is none.
        series: Every metric by name, in the order of their first points.
        texts: Every text by name.
        calls: Number of ``log`` calls.
        skipped: Number of damaged stretches that were passed over.
    """

    info: RunInfo
    config: dict[str, Any] = field(default_factory=dict)
    status: str = "running"
    error: str | None = None
    ended: float = 0.0
    series: dict[str, Series] = field(default_factory=dict)
    texts: dict[str, list[Text]] = field(default_factory=dict)
    calls: int = 0
    skipped: int = 0


def journal_of(path: str | os.PathLike[str]) -> Path:
    """Return the journal at ``path``, which is it or the folder of its run.

    Raises:
        FileNotFoundError: there is none.
    """
    given = Path(path)
    journal = given / JOURNAL_NAME if given.is_dir() else given
    if not journal.is_file():
        raise FileNotFoundError(f"there is no run at {str(given)!r}: no file {str(journal)!r}.")
    return journal


def find_runs(path: str | os.PathLike[str]) -> list[Path]:
    """Return the folders of all runs at or under ``path``, in the order of their names.

    Runs are named by the time they were started, so the newest is last, unless one was renamed.
    """
    given = Path(path)
    if given.is_file():
        return [given.parent] if given.name == JOURNAL_NAME else []
    found = (path.parent for path in given.rglob(JOURNAL_NAME) if path.is_file())
    return sorted(found, key=lambda folder: folder.name)


def read_run(path: str | os.PathLike[str]) -> RunRecord:
    """Read a run whole; never fails on what the journal holds.

    Args:
        path: The run's folder, or its journal.

    Raises:
        FileNotFoundError: there is no run.
    """
    journal = journal_of(path)
    record = RunRecord(info=RunInfo.from_record({}, journal.parent.absolute()))
    points: dict[str, list[tuple[int, float, float]]] = {}
    ended = False
    for item in _records(journal, record):
        if isinstance(item, Event):
            ended = _take_event(record, item) or ended
        else:
            record.calls += 1
            record.ended = max(record.ended, item.time)
            _take_entry(record, points, item)
    record.series = {name: _series(rows) for name, rows in points.items()}
    if not ended:
        record.status = "running" if is_running(journal, record.info) else "crashed"
    return record


def _records(journal: Path, record: RunRecord) -> Iterator[Entry | Event]:
    tail = JournalTail(journal)
    try:
        while batch := tail.read(10_000):
            yield from (item for item, _ in batch)
        record.skipped = tail.damaged + tail.leftover()
    finally:
        tail.close()


def _take_event(record: RunRecord, event: Event) -> bool:
    """Take in a START, CONFIG or END; return whether it is an END."""
    content = event.content
    if event.kind == frames.START:
        record.info = RunInfo.from_record(content, record.info.folder)
        record.ended = max(record.ended, record.info.started)
    elif event.kind == frames.CONFIG:
        record.config.update(content)
    elif event.kind == frames.END:
        record.status = str(content.get("status", "finished"))
        record.error = content.get("error")
        record.ended = float(content.get("time", record.ended))
        return True
    return False


def _take_entry(
    record: RunRecord, points: dict[str, list[tuple[int, float, float]]], entry: Entry
) -> None:
    for key, value in zip(entry.keys, entry.values, strict=True):
        if isinstance(value, str):
            text = Text(entry.step, entry.time, value)
            record.texts.setdefault(key, []).append(text)
        elif value is not None:
            points.setdefault(key, []).append((entry.step, entry.time, _as_float(value)))


def _as_float(value: float | bool) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _series(rows: list[tuple[int, float, float]]) -> Series:
    steps, times, values = zip(*rows, strict=True)
    return Series(
        np.array(steps, dtype=np.int64),
        np.array(times, dtype=np.float64),
        np.array(values, dtype=np.float64),
    )


def is_running(journal: Path, info: RunInfo) -> bool:
    """Tell whether a run without an end is still being written.

    Its writer holds a lock on the journal; where locks tell nothing (another machine's file
    system), a run that is young enough to have been written in the last minute counts as running.
    """
    with journal.open("rb") as file:
        free = lock_file(file.fileno(), exclusive=False)
    if not free:
        return True
    import socket
    import time

    if info.host in ("", socket.gethostname()):  # without a start there is no writer to speak of
        return False
    return time.time() - journal.stat().st_mtime < 60
