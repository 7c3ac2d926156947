"""Reading a journal that grows: whole records in order, as entries that trackers take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from rankzero.tracking import frames
from rankzero.tracking.journal import decode

if TYPE_CHECKING:
    from pathlib import Path

    from rankzero.tracking.frames import Frame, Schema

CHUNK = 1 << 18


class Entry(NamedTuple):
    """One ``log`` call.

    Attributes:
        step: The step, given or chosen.
        time: Unix seconds of the call.
        keys: Flattened keys.
        values: One float, int, bool, str or None for each key.
        given: Whether the caller gave the step.
        options: What one tracker was told about this call: the tracker's own ``log_kwargs``.
        only: The one tracker that the call is for; None: all.
    """

    step: int
    time: float
    keys: tuple[str, ...]
    values: tuple[float | int | bool | str | None, ...]
    given: bool
    options: dict[str, Any] | None
    only: str | None


class Event(NamedTuple):
    """A START, CONFIG or END record: its kind (see ``frames``) and content."""

    kind: int
    content: dict[str, Any]


def read_call(content: dict[str, Any]) -> Entry:
    """Return the entry of a CALL record."""
    triples = content["values"]
    return Entry(
        step=int(content["step"]),
        time=float(content["time"]),
        keys=tuple(key for key, _, _ in triples),
        values=tuple(decode(code, payload) for _, code, payload in triples),
        given=bool(content["given"]),
        options=content.get("options"),
        only=content.get("only"),
    )


class JournalTail:
    """Follows a journal from the start, or from a stored place in it.

    Args:
        path: The journal.
        offset: Place from which entries are wanted; what lies before is read for its schemas only.

    Attributes:
        offset: End of the last record that was returned: what a cursor stores.
        damaged: Number of damaged stretches passed over.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._file = path.open("rb", buffering=0)
        self._schemas: dict[int, Schema] = {}
        self._position = len(frames.FILE_HEADER)
        self._span = CHUNK
        self._wanted = offset
        self._ready: list[tuple[Entry | Event, int]] = []
        self.offset = max(offset, self._position)
        self.damaged = 0

    def read(self, most: int = 1000) -> list[tuple[Entry | Event, int]]:
        """Return up to ``most`` next ``(record, end of the record)``; empty: none is there now."""
        while len(self._ready) < most and self._read_chunk():
            pass
        taken, self._ready = self._ready[:most], self._ready[most:]
        if taken:
            self.offset = max(self.offset, taken[-1][1])
        return taken

    def _read_chunk(self) -> bool:
        """Take in the next part of the file; False where no whole record follows.

        An unfinished record at the end is read again next time, as its writer may take it back.
        """
        self._file.seek(self._position)
        buffer = self._file.read(self._span)
        found = frames.scan(buffer)
        if not found.frames:
            if len(buffer) < self._span:
                return False
            self._span *= 2
            return True
        self.damaged += found.damaged
        for frame in found.frames:
            self._take(buffer, frame, self._position + frame.stop)
        self._position += found.stop
        self._span = CHUNK
        return True

    def _take(self, buffer: bytes, frame: Frame, end: int) -> None:
        if frame.kind == frames.SCHEMA:
            schema = frames.read_schema(buffer, frame)
            self._schemas[schema.number] = schema
        elif end > self._wanted or frame.kind == frames.START:
            record = self._decode(buffer, frame)
            if record is not None:
                self._ready.append((record, end))

    def _decode(self, buffer: bytes, frame: Frame) -> Entry | Event | None:
        if frame.kind in (frames.POINT, frames.POINT_AUTO):
            number = frames.POINT_HEAD.unpack_from(buffer, frame.start)[4]
            schema = self._schemas.get(number)
            if schema is None:  # its definition was in a damaged stretch
                self.damaged += 1
                return None
            _, kind, _, _, _, step, time, *values = schema.layout.unpack_from(buffer, frame.start)
            return Entry(step, time, schema.keys, tuple(values), kind == frames.POINT, None, None)
        content = frames.unpack_json(buffer, frame)
        return read_call(content) if frame.kind == frames.CALL else Event(frame.kind, content)

    def leftover(self) -> int:
        """Return 1 where a torn record stands after the last whole one, else 0."""
        self._file.seek(0, 2)
        return int(self._file.tell() > self._position)

    def close(self) -> None:
        """Release the file."""
        self._file.close()
