"""The journal's format: everything comes back to the bit, and damage loses only what it hits."""

from __future__ import annotations

import itertools
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankzero.tracking import frames
from rankzero.tracking.journal import JournalWriter
from rankzero.tracking.notices import Notices
from tests.tracking.journals import MIXED, exact, read_all, same, write, write_run

any_text = st.text(st.characters())  # lone surrogates included
plain = st.one_of(
    st.floats(), st.integers(), st.integers(-(1 << 64), 1 << 64), st.booleans(), any_text, st.none()
)
packed = st.one_of(st.floats(), st.integers(-(1 << 63), (1 << 63) - 1), st.booleans())
calls = st.lists(st.dictionaries(any_text, st.one_of(plain, packed), min_size=1), max_size=5)


def merged(value: Any) -> Any:
    """Return text with two halves of a surrogate pair as the one character they are in JSON."""
    if not isinstance(value, str):
        return exact(value)
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


@settings(deadline=None, max_examples=200)
@given(calls, st.integers(-(1 << 63), (1 << 63) - 10), st.floats(allow_nan=False))
def test_any_keys_and_values_come_back_to_the_bit(
    logged: list[dict[str, Any]], step: int, now: float
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal.rz"
        journal = JournalWriter(path, Notices())
        for values in logged:
            for _ in range(2):  # the second time by the loop's short way
                if not journal.write_numbers(values, step, now):
                    keys, found = tuple(values), tuple(values.values())
                    journal.write_call(keys, found, step, True, now)
        journal.close()
        entries, _, damaged = read_all(path)
    assert damaged == 0
    assert len(entries) == journal.calls == 2 * len(logged)
    for values, entry in zip([v for v in logged for _ in range(2)], entries, strict=True):
        assert list(map(merged, entry.keys)) == list(map(merged, values))
        assert list(map(merged, entry.values)) == list(map(merged, values.values()))
        assert (entry.step, entry.given, exact(entry.time)) == (step, True, exact(now))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "journal.rz"
    write_run(path, MIXED)
    return path.read_bytes()


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.rz"


def test_the_example_of_these_tests_reads_back_whole(whole: bytes, journal: Path) -> None:
    journal.write_bytes(whole)
    entries, events, damaged = read_all(journal)
    assert [list(map(exact, e.values)) for e in entries] == [
        list(map(exact, values.values())) for values in MIXED
    ]
    assert [event.kind for event in events] == [frames.START, frames.CONFIG, frames.END]
    assert damaged == 0


def test_a_journal_cut_off_at_any_byte_gives_what_was_whole_before_the_cut(
    whole: bytes, journal: Path
) -> None:
    journal.write_bytes(whole)
    expected = [same(entry) for entry in read_all(journal)[0]]
    points = (frames.POINT, frames.POINT_AUTO, frames.CALL)
    found = frames.scan(whole, len(frames.FILE_HEADER)).frames
    stops = [frame.stop for frame in found if frame.kind in points]
    boundaries = {len(frames.FILE_HEADER), *(frame.stop for frame in found)}
    for cut in range(len(whole) + 1):
        journal.write_bytes(whole[:cut])
        entries, _, damaged = read_all(journal)
        assert list(map(same, entries)) == expected[: sum(stop <= cut for stop in stops)]
        assert damaged == (cut > len(frames.FILE_HEADER) and cut not in boundaries)


def test_a_writer_continues_a_journal_that_was_cut_off_at_any_byte(
    whole: bytes, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda file: None)  # hundreds of journals: no need for the disk
    for cut in range(len(whole) + 1):
        journal.write_bytes(whole[:cut])
        before = list(map(same, read_all(journal)[0]))
        writer = JournalWriter(journal, Notices())
        assert writer.calls == len(before)
        write(writer, [{"new": 1.5}, *MIXED], 100)
        writer.close()
        entries, _, damaged = read_all(journal)
        assert damaged == 0
        assert list(map(same, entries[: len(before)])) == before
        assert [list(map(exact, e.values)) for e in entries[len(before) :]] == [
            list(map(exact, values.values())) for values in [{"new": 1.5}, *MIXED]
        ]


@pytest.mark.parametrize("flip", [0xFF, 0x01, 0x80])
def test_a_flipped_byte_loses_at_most_the_record_it_hits_and_is_counted(
    whole: bytes, journal: Path, flip: int
) -> None:
    journal.write_bytes(whole)
    expected = list(map(same, read_all(journal)[0]))
    schemas_hit = 0
    for place in range(len(frames.FILE_HEADER), len(whole)):
        broken = bytearray(whole)
        broken[place] ^= flip
        journal.write_bytes(broken)
        entries, events, damaged = read_all(journal)
        left = list(map(same, entries))
        assert [entry for entry in expected if entry in left] == left
        lost = len(expected) - len(left) + 3 - len(events)
        assert lost <= 1
        assert damaged == 1
        schemas_hit += lost == 0
    assert schemas_hit > 0


def test_a_broken_file_header_loses_nothing(whole: bytes, journal: Path) -> None:
    journal.write_bytes(b"\0" * 8 + whole[8:])
    entries, events, _ = read_all(journal)
    assert (len(entries), len(events)) == (len(MIXED), 3)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_blocks_of_zeros_lose_only_the_records_they_lie_in(whole: bytes, data: Any) -> None:
    found = frames.scan(whole, len(frames.FILE_HEADER)).frames
    hit = data.draw(st.sets(st.integers(0, len(found) - 1), min_size=1, max_size=4))
    broken = bytearray(whole)
    for index in hit:
        start = data.draw(st.integers(found[index].start, found[index].stop - 1))
        stop = data.draw(st.integers(start + 1, found[index].stop))
        broken[start:stop] = bytes(stop - start)
    if bytes(broken) == whole:
        return
    left = frames.scan(bytes(broken), len(frames.FILE_HEADER))
    intact = [f for f in found if broken[f.start : f.stop] == whole[f.start : f.stop]]
    assert left.frames == intact


def test_noise_is_passed_over_without_an_error(journal: Path) -> None:
    noise = random.Random(0)
    for size in itertools.chain(range(64), [1000, 300_000]):
        marked = noise.randbytes(size) + frames.MARKER_BYTES + noise.randbytes(size)
        journal.write_bytes(frames.FILE_HEADER + marked)
        assert read_all(journal) == ([], [], 1)
