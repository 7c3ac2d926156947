"""The writer of a run's journal: when a call has returned, its record survives ``kill -9``."""

from __future__ import annotations

import contextlib
import os
import struct
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rankzero.tracking import frames
from rankzero.tracking.frames import MARKER, POINT, POINT_AUTO, Schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from rankzero.tracking.notices import Notices

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MOST_SCHEMAS = 4096
MOST_BACKLOG_BYTES = 64 << 20
RETRY_SECONDS = 1.0
_CODES: dict[type, str] = {float: "d", int: "q", bool: "?"}


def lock_file(descriptor: int, exclusive: bool) -> bool:
    """Try to lock an open file; False where another open file holds the lock."""
    if fcntl is None:
        return True
    kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


class JournalWriter:
    """Appends records, each by one unbuffered write, and holds a lock on the file while it lives.

    When the disk refuses, training goes on: records wait in memory (64 MiB of them), the write is
    tried again about once a second, and one warning is given. A record that comes after ``close``
    is still written, at its end, with a warning; in a forked process nothing is.

    Args:
        path: The journal; made with its header where it does not exist. One that exists is
            continued after its last whole record; a torn end is cut off.
        notices: Where the warning goes.

    Attributes:
        calls: Number of ``log`` calls recorded.

    Raises:
        OSError: the file can't be opened.
    """

    def __init__(self, path: Path, notices: Notices) -> None:
        self.path = path
        self.calls = 0
        self._notices = notices
        self._lock = threading.RLock()  # a signal handler may write while its thread is writing
        self._schemas: dict[tuple[Any, ...], tuple[Any, int, int]] = {}
        self._numbers: dict[tuple[tuple[str, ...], str], Schema] = {}
        self._next_number = 0
        self._next_auto = 0
        self._last_given: int | None = None
        self._backlog: deque[bytes] = deque()
        self._backlog_bytes = 0
        self._lost = 0
        self._retry_at = 0.0
        self._forgotten = False
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.open(path, flags, 0o644)
        lock_file(self._file, exclusive=True)
        self._size = self._recover()

    def _recover(self) -> int:
        """Write the header, or cut off a torn end and learn the schemas; return the size."""
        size = os.fstat(self._file).st_size
        if size < len(frames.FILE_HEADER):
            os.ftruncate(self._file, 0)
            os.write(self._file, frames.FILE_HEADER)
            return len(frames.FILE_HEADER)
        content = self.path.read_bytes()
        found = frames.scan(content, len(frames.FILE_HEADER))
        for frame in found.frames:
            if frame.kind == frames.SCHEMA:
                schema = frames.read_schema(content, frame)
                self._numbers[schema.keys, schema.codes] = schema
                self._next_number = max(self._next_number, schema.number + 1)
            elif frame.kind in (POINT, POINT_AUTO, frames.CALL):
                self.calls += 1
        os.ftruncate(self._file, found.stop)
        return found.stop

    def write_numbers(self, values: Any, step: int | None, now: float) -> bool:
        """Record a dict of floats, ints and bools if its keys were seen before with these types.

        The loop's usual call: one look-up, one pack, one checksum, one write. Returns False,
        having done nothing, for whatever needs more than that.
        """
        if type(values) is not dict:
            return False
        entry = self._schemas.get((*values, *map(type, values.values())))
        if entry is None:
            return False
        pack, number, size = entry
        with self._lock:
            try:
                if step is None:
                    auto = self._auto_step()
                    body = pack(MARKER, POINT_AUTO, 0, size, number, auto, now, *values.values())
                    self._next_auto += 1
                elif type(step) is int:
                    body = pack(MARKER, POINT, 0, size, number, step, now, *values.values())
                    self._last_given = step
                else:
                    return False
            except struct.error:  # an int beyond 64 bits
                return False
            self.calls += 1
            self._append(frames.seal(body))
        return True

    def _auto_step(self) -> int:
        """Return the step of a call that gives none.

        It is the last step that was given; where none was given yet, calls count 0, 1, 2 ...
        """
        return self._next_auto if self._last_given is None else self._last_given

    def settle_step(self, step: int | None) -> tuple[int, bool]:
        """Return ``(step, given)`` for a call, and remember a given step for those without."""
        with self._lock:
            if step is None:
                auto = self._auto_step()
                self._next_auto += 1
                return auto, False
            self._last_given = step
            return step, True

    def write_call(
        self,
        keys: tuple[str, ...],
        values: tuple[Any, ...],
        step: int,
        given: bool,
        now: float,
        options: Mapping[str, Any] | None = None,
        only: str | None = None,
    ) -> None:
        """Record a call of plain values (float, int of any size, bool, str, None).

        Args:
            keys: The keys, flattened.
            values: One for each key.
            step: The step; within 64 bits.
            given: Whether the caller gave the step.
            now: Unix seconds.
            options: What single trackers are told about this call, by tracker name.
            only: The one tracker that the call is for; None: all.
        """
        with self._lock:
            schema = None if options or only else self._schema(keys, values)
            if schema is not None:
                kind = POINT if given else POINT_AUTO
                with contextlib.suppress(struct.error):  # an int beyond 64 bits goes as text
                    head = (MARKER, kind, 0, schema.size, schema.number, step, now)
                    record = frames.seal(schema.layout.pack(*head, *values))
                    self.calls += 1
                    self._append(record)
                    return
            content: dict[str, Any] = {"step": step, "given": given, "time": now}
            content["values"] = [
                _encode(key, value) for key, value in zip(keys, values, strict=True)
            ]
            content |= {"options": dict(options)} if options else {}
            content |= {"only": only} if only else {}
            record = frames.pack_json(frames.CALL, content)
            self.calls += 1
            self._append(record)

    def _schema(self, keys: tuple[str, ...], values: tuple[Any, ...]) -> Schema | None:
        """Return the schema for packed points like this, written first if new; None: not packed."""
        types = tuple(map(type, values))
        if not all(kind in _CODES for kind in types):
            return None
        codes = "".join(_CODES[kind] for kind in types)
        schema = self._numbers.get((keys, codes))
        if schema is None:
            if len(self._numbers) >= MOST_SCHEMAS:
                return None
            schema = frames.make_schema(self._next_number, keys, codes)
            self._next_number += 1
            for _ in range(2):  # all points of these keys hang on it: one damaged byte may not do
                self._append(schema.record())
            self._numbers[keys, codes] = schema
        seen_as = (*keys, *types)
        self._schemas[seen_as] = (schema.layout.pack, schema.number, schema.size)
        return schema

    def write_json(self, kind: int, content: Any) -> None:
        """Record a START, CONFIG or END."""
        record = frames.pack_json(kind, content)
        with self._lock:
            self._append(record, needed=True)

    def catch_up(self) -> None:
        """Try now to write what the disk has refused so far."""
        with self._lock:
            if self._backlog and self._file >= 0:
                self._catch_up()

    def _append(self, record: bytes, needed: bool = False) -> None:
        """Write one record whole, or keep it for later; the lock is held.

        Args:
            record: The record.
            needed: Keep it however much is waiting already.
        """
        if self._file < 0:
            self._append_late(record)
            return
        if self._backlog:
            self._defer(record, needed)
            if time.monotonic() >= self._retry_at:
                self._catch_up()
            return
        try:
            written = os.write(self._file, record)
            if written != len(record):
                self._finish_write(record, written)
        except OSError as error:
            self._refused(error)
            self._defer(record, needed)
            return
        self._size += len(record)

    def _append_late(self, record: bytes) -> None:
        """Write a record that comes after the end, where it is not lost at least."""
        if self._forgotten:
            self._notices.warn_once(
                "forked",
                f"log() was called in process {os.getpid()}, which was forked from the one that records the"
                f" run: nothing of it is recorded.",
            )
            return
        self._notices.warn_once(
            "after end",
            f"log() was called after the run had ended: the values go to the journal in {self.path.parent},"
            f" but to no tracker. Call end_training() last, or init_trackers() for a new run.",
        )
        try:
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
            self._finish_write(record, 0)
        except OSError as error:
            self._notices.warn_once("late", f"{self.path} can't be written ({error}).")
        finally:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def _finish_write(self, record: bytes, written: int) -> None:
        """Write the rest of a record of which the system took only a part."""
        view = memoryview(record)
        while written < len(record):
            taken = os.write(self._file, view[written:])
            if taken == 0:
                raise OSError(f"the system took {written} of {len(record)} bytes")
            written += taken

    def _refused(self, error: OSError) -> None:
        with contextlib.suppress(OSError):  # take back a half-written record
            os.ftruncate(self._file, self._size)
        self._retry_at = time.monotonic() + RETRY_SECONDS
        self._notices.warn_once(
            "journal refused",
            f"The journal {self.path} can't be written ({error}). Training goes on; what is logged is"
            f" kept in memory ({MOST_BACKLOG_BYTES >> 20} MiB) and written when the disk takes it again.",
        )

    def _defer(self, record: bytes, needed: bool) -> None:
        if not needed and self._backlog_bytes + len(record) > MOST_BACKLOG_BYTES:
            self._lost += 1
            return
        self._backlog.append(record)
        self._backlog_bytes += len(record)

    def _catch_up(self) -> None:
        try:
            while self._backlog:
                record = self._backlog[0]
                self._finish_write(record, 0)
                self._size += len(record)
                self._backlog_bytes -= len(record)
                self._backlog.popleft()
        except OSError as error:
            self._refused(error)

    @property
    def waiting(self) -> int:
        """Number of records that the disk has not taken, or never will."""
        return len(self._backlog) + self._lost

    def close(self) -> None:
        """Write what waits in memory, bring the file to the disk, and release it."""
        with self._lock:
            if self._file < 0:
                return
            if self._backlog:
                self._catch_up()
            with contextlib.suppress(OSError):
                os.fsync(self._file)
            os.close(self._file)
            self._file = -1
            lost = self.waiting
        if lost:
            self._notices.warn_once(
                "journal lost",
                f"The journal {self.path} lacks {lost} records: the disk did not take them.",
            )

    def forget(self) -> None:
        """Let go of the file in a forked child, where nothing is to be written."""
        self._lock = threading.RLock()  # another thread may have held it at the fork
        self._forgotten = True
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
        self._file = -1


def _encode(key: str, value: Any) -> list[Any]:
    """Return ``[key, code, payload]`` of one value of a CALL record."""
    if isinstance(value, bool):
        return [key, "?", value]
    if isinstance(value, int):
        return [key, "q", hex(value)]  # decimal text of a huge int is slow, and limited in length
    if isinstance(value, float):
        return [key, "d", struct.pack("<d", value).hex()]  # exact to the bit, NaN payloads included
    if isinstance(value, str):
        return [key, "s", value]
    return [key, "n", None]


def decode(code: str, payload: Any) -> float | int | bool | str | None:
    """Return the value that ``[key, code, payload]`` of a CALL record stands for."""
    if code == "d":
        number: float = struct.unpack("<d", bytes.fromhex(payload))[0]
        return number
    if code == "q":
        return int(payload, 16)
    if code == "?":
        return bool(payload)
    return None if payload is None else str(payload)
