"""Delivery of a journal to one tracker: a thread, a cursor, and patience."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from rankzero.tracking import frames
from rankzero.tracking.adapter import Adapter, MissingPackage
from rankzero.tracking.run import CURSOR_FOLDER, JOURNAL_NAME, RunInfo, write_atomically
from rankzero.tracking.tail import Entry, Event, JournalTail

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rankzero.tracking.notices import Notices

POLL_SECONDS = 0.3
BATCH = 1000
# Entries handled in one go before the interpreter is left to the training loop: about half a
# millisecond, so that a call of log() that comes in between is not kept waiting for longer.
SLICE = 8
PAUSE_SECONDS = 0.001
FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 30.0


class Consumer:
    """Feeds one tracker from a run's journal, in a thread of its own.

    Whatever the tracker does - start slowly, raise, hang - concerns this thread alone. A call that
    raised is made again after half a second, then ever longer up to 30 s.

    Args:
        adapter: The tracker's adapter, not opened yet.
        notices: Where its one warning goes.

    Attributes:
        delivered: Number of ``log`` calls the tracker has taken for certain.
        failure: What the tracker last said when it refused, None while it takes.
        missing: Whether the tracker's library is not installed; then the thread has ended.
    """

    def __init__(self, adapter: Adapter, notices: Notices) -> None:
        self.adapter = adapter
        self.name = adapter.name
        self.delivered = 0
        self.failure: str | None = None
        self.missing = False
        self._notices = notices
        self._run: RunInfo = adapter.run
        self._cursor = adapter.run.folder / CURSOR_FOLDER / f"{adapter.name}.json"
        self._tail: JournalTail | None = None
        self._opened = threading.Event()
        self._done = threading.Event()
        self._wake = threading.Event()
        self._hurry = False
        self._thread = threading.Thread(
            target=self._work, name=f"rankzero-{self.name}", daemon=True
        )

    def start(self) -> None:
        """Open the journal, so that it is followed wherever its folder goes; start the thread."""
        with contextlib.suppress(OSError):  # the thread will meet the error again, and say so
            self._tail = self._open_tail()
        self._thread.start()

    def _open_tail(self) -> JournalTail:
        return JournalTail(self._run.folder / JOURNAL_NAME, read_cursor(self._cursor))

    def wake(self) -> None:
        """Look at the journal now rather than at the next turn."""
        self._wake.set()

    def hurry(self) -> None:
        """Deliver what is there now, without pauses: someone is waiting."""
        self._hurry = True
        self._wake.set()

    def wait_done(self, seconds: float) -> bool:
        """Wait until the run's end is delivered; False where it is not by then."""
        return self._done.wait(max(0.0, seconds))

    def wait_open(self, seconds: float) -> Any:
        """Return the tracker's native object, waiting until it is there; None where it is not."""
        self._opened.wait(max(0.0, seconds))
        return self.adapter.native

    def _work(self) -> None:
        try:
            self._deliver()
        except MissingPackage as error:
            self.missing = True
            self.failure = str(error)
            self._notices.warn_once(
                f"missing {self.name}",
                f"The tracker {self.name} is not installed: pip install {self.adapter.install}. The run is"
                f" recorded all the same, in {self._run.folder / JOURNAL_NAME}.",
            )
        except Exception as error:  # noqa: BLE001 - the last resort of a thread nobody waits for
            self.failure = repr(error)
            self._warn(error)
        finally:
            if self._tail is not None:
                self._tail.close()
            self._opened.set()
            self._done.set()

    def _deliver(self) -> None:
        self._insist(self.adapter.open)
        self._opened.set()
        tail = self._tail = self._tail or self._open_tail()
        ended = False
        while not ended:
            records = tail.read(BATCH)
            if records:
                ended = self._take(records)
                self._insist(self.adapter.flush) if not ended else None
                self.delivered += sum(isinstance(record, Entry) for record, _ in records)
                self._store(tail.offset)
            if len(records) < BATCH and not ended:
                # Calls are left to gather: taking each as it comes would be at the loop's cost.
                self._wake.wait(POLL_SECONDS)
                self._wake.clear()

    def _take(self, records: list[tuple[Entry | Event, int]]) -> bool:
        """Hand records over, in slices; True once the run's end was among them."""
        slice_: list[Entry] = []
        for record, _ in records:
            if isinstance(record, Entry):
                if record.only in (None, self.name):
                    slice_.append(self._own(record))
                if len(slice_) < (BATCH if self._hurry else SLICE):
                    continue
            self._write(slice_)
            slice_ = []
            if isinstance(record, Event) and self._take_event(record):
                return True
        self._write(slice_)
        return False

    def _own(self, entry: Entry) -> Entry:
        options = entry.options
        return entry if options is None else entry._replace(options=options.get(self.name) or None)

    def _write(self, entries: list[Entry]) -> None:
        if not entries:
            return
        self._insist(lambda: self.adapter.write(entries))
        if not self._hurry:
            time.sleep(PAUSE_SECONDS)

    def _take_event(self, event: Event) -> bool:
        content = event.content
        if event.kind == frames.CONFIG:
            self._insist(lambda: self.adapter.configure(content), attempts=3)
        elif event.kind == frames.END:
            self._insist(lambda: self.adapter.close(str(content["status"]), content.get("error")))
            return True
        return False

    def _insist(self, call: Callable[[], object], attempts: int | None = None) -> None:
        """Make a call of the adapter until it does not raise, or ``attempts`` times."""
        pause = FIRST_RETRY_SECONDS
        for attempt in itertools.count(1):
            try:
                call()
            except MissingPackage:
                raise
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything
                self.failure = f"{type(error).__name__}: {error}"
                self._warn(error)
            else:
                self.failure = None
                return
            if attempt == attempts:
                return
            self._wake.wait(pause)
            self._wake.clear()
            pause = min(2 * pause, LONGEST_RETRY_SECONDS if not self._hurry else 1.0)

    def _warn(self, error: Exception) -> None:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        self._notices.warn_once(
            f"tracker {self.name}",
            f"The tracker {self.name} fails ({said[:300]}). Training goes on, and delivery from the"
            f" journal in {self._run.folder} is tried again.",
        )

    def _store(self, offset: int) -> None:
        try:
            self._cursor.parent.mkdir(exist_ok=True)
            write_atomically(self._cursor, json.dumps({"offset": offset}).encode())
        except OSError as error:
            self._notices.warn_once(
                "folder",
                f"The run's folder {self._run.folder} can't be written any more ({error}). Training goes on;"
                f" what is logged from now on may be lost.",
            )


def read_cursor(path: Path) -> int:
    """Return the stored place in the journal; 0 where none is stored or it can't be read."""
    try:
        return int(json.loads(path.read_bytes())["offset"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
