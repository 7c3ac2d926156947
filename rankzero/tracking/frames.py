"""The journal's format: an 8-byte file header, then records that are each checked by a CRC-32.

A record, little-endian and unpadded::

    uint16 marker 0x525A | uint8 kind | uint8 0 | uint32 size of the whole record |
    payload | uint32 crc32 of all before

Kinds: SCHEMA, CALL, START, CONFIG and END carry UTF-8 JSON. POINT and POINT_AUTO carry
``uint32 schema | int64 step | float64 unix seconds | one field a key``, where the schema names the
keys and their struct codes: ``d`` float64, ``q`` int64, ``?`` bool. It is written before its first
use, twice, so that no single damaged byte takes all its points. POINT_AUTO says that the caller
gave no step and that the hub chose this one.

A record is appended by a single ``write``, so what can be torn is the last one only; a damaged one
is passed over by looking for the next marker whose checksum is right.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

FILE_HEADER = b"RZJRNL\x01\x00"
MARKER = 0x525A
MARKER_BYTES = struct.pack("<H", MARKER)
HEAD = struct.Struct("<HBBI")
TAIL = struct.Struct("<I")
POINT_HEAD = struct.Struct("<HBBIIqd")
SMALLEST = HEAD.size + TAIL.size

SCHEMA, POINT, POINT_AUTO, CALL, START, CONFIG, END = range(1, 8)


class Frame(NamedTuple):
    """One whole record inside a buffer: its kind and where it lies, ``start`` to ``stop``."""

    kind: int
    start: int
    stop: int


class Scan(NamedTuple):
    """What a buffer held.

    Attributes:
        frames: The whole records, in order.
        stop: Where the last whole record ends; what follows is unfinished or torn.
        damaged: Number of stretches that were passed over because no checksum was right.
    """

    frames: list[Frame]
    stop: int
    damaged: int


def seal(body: bytes) -> bytes:
    """Return ``body`` (head and payload) with its checksum."""
    return body + TAIL.pack(zlib.crc32(body))


def pack_json(kind: int, payload: Any) -> bytes:
    """Return a record of ``kind`` that carries ``payload`` as JSON.

    NaN and infinities are written as the tokens that Python's ``json`` reads.
    """
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    data = text.encode("utf-8", "backslashreplace")
    return seal(HEAD.pack(MARKER, kind, 0, SMALLEST + len(data)) + data)


def unpack_json(buffer: bytes | memoryview, frame: Frame) -> Any:
    """Return the payload of a JSON record."""
    return json.loads(bytes(buffer[frame.start + HEAD.size : frame.stop - TAIL.size]))


class Schema(NamedTuple):
    """The keys of a packed point, their struct codes, and the layout of the record's body."""

    number: int
    keys: tuple[str, ...]
    codes: str
    layout: struct.Struct

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return self.layout.size + TAIL.size

    def record(self) -> bytes:
        """Return the SCHEMA record that has to come before the schema's first use."""
        return pack_json(SCHEMA, {"id": self.number, "keys": self.keys, "codes": self.codes})


def make_schema(number: int, keys: tuple[str, ...], codes: str) -> Schema:
    """Return the schema of points with these keys, in this order."""
    return Schema(number, keys, codes, struct.Struct(POINT_HEAD.format + codes))


def read_schema(buffer: bytes | memoryview, frame: Frame) -> Schema:
    """Return the schema that a SCHEMA record defines."""
    content = unpack_json(buffer, frame)
    return make_schema(int(content["id"]), tuple(content["keys"]), str(content["codes"]))


def _frames_from(view: memoryview, position: int) -> Iterator[Frame]:
    """Yield whole records from ``position`` for as long as one follows on the other."""
    end = len(view)
    unpack_head, unpack_tail, crc32 = HEAD.unpack_from, TAIL.unpack_from, zlib.crc32
    last_head = end - SMALLEST
    while position <= last_head:
        marker, kind, _, size = unpack_head(view, position)
        stop = position + size
        if marker != MARKER or size < SMALLEST or stop > end:
            return
        body = stop - 4
        if crc32(view[position:body]) != unpack_tail(view, body)[0]:
            return
        yield Frame(kind, position, stop)
        position = stop


def scan(buffer: bytes | bytearray | memoryview, start: int = 0) -> Scan:
    """Find the whole records of ``buffer`` from ``start`` on, passing over damaged stretches.

    Never raises on any content. A stretch after which no whole record follows is not counted as
    damaged: it may be a record that is being written.
    """
    raw = buffer if isinstance(buffer, bytes) else bytes(buffer)
    view = memoryview(raw)
    frames: list[Frame] = []
    position: int | None = start
    stop, damaged = start, -1
    while position is not None:
        damaged += 1
        frames.extend(_frames_from(view, position))
        stop = frames[-1].stop if frames else start
        position = _next_whole(raw, view, stop + 1)
    return Scan(frames, stop, damaged)


def _next_whole(raw: bytes, view: memoryview, search: int) -> int | None:
    """Return where the next whole record at or after ``search`` starts, or None."""
    found = raw.find(MARKER_BYTES, search)
    while found >= 0:
        if next(_frames_from(view, found), None) is not None:
            return found
        found = raw.find(MARKER_BYTES, found + 1)
    return None
