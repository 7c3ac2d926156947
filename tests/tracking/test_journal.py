"""The journal's writer and its reader, side by side: growing, refused by the disk, continued."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankzero.tracking import frames
from rankzero.tracking.journal import JournalWriter
from rankzero.tracking.notices import Notices
from rankzero.tracking.tail import CHUNK, JournalTail
from tests.tracking.journals import MIXED, read_all, same, write, write_run
from tests.tracking.scripts import RUN, run_script, the_run


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.rz"


@settings(deadline=None, max_examples=50)
@given(parts=st.lists(st.integers(1, 200), min_size=1))
def test_a_reader_of_a_growing_journal_gets_each_record_once_and_only_when_it_is_whole(
    tmp_path_factory: pytest.TempPathFactory, parts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("growing")
    write_run(folder / "whole", MIXED)
    content = (folder / "whole").read_bytes()
    expected, _, _ = read_all(folder / "whole")
    with (folder / "growing").open("wb", buffering=0) as file:
        tail = JournalTail(folder / "growing")
        found = []
        for size in [*parts, len(content)]:
            file.write(content[file.tell() : file.tell() + size])
            found += [record for record, _ in tail.read()]
            assert tail.damaged == 0
        assert tail.leftover() == 0
        tail.close()
    assert [same(r) for r in found if hasattr(r, "keys")] == list(map(same, expected))
    assert len(found) == len(expected) + 3


def test_a_reader_keeps_up_with_a_writer_in_another_thread(path: Path) -> None:
    count = 5000
    journal = JournalWriter(path, Notices())
    values = [{"loss": float(step)} if step % 7 else {"text": str(step)} for step in range(count)]
    writer = threading.Thread(target=write, args=(journal, values))
    writer.start()
    tail = JournalTail(path)
    steps: list[int] = []
    deadline = time.monotonic() + 60
    while len(steps) < count and time.monotonic() < deadline:
        steps += [record.step for record, _ in tail.read(100)]
    writer.join()
    journal.close()
    tail.close()
    assert steps == list(range(count))


def test_a_reader_goes_on_from_any_place_it_has_stored(path: Path) -> None:
    write_run(path, MIXED)
    tail = JournalTail(path)
    expected = [record for record, _ in tail.read()]
    tail.close()
    for taken in range(1, len(expected) + 1):
        first = JournalTail(path)
        assert len(first.read(taken)) == taken
        second = JournalTail(path, first.offset)
        again = [record for record, _ in second.read()]
        # who the run is, is told again
        assert list(map(repr, again)) == list(map(repr, [expected[0], *expected[taken:]]))
        first.close()
        second.close()


@pytest.mark.parametrize("size", [CHUNK // 2, CHUNK, 5 * CHUNK])
def test_records_larger_than_what_is_read_at_once_come_whole(path: Path, size: int) -> None:
    journal = JournalWriter(path, Notices())
    write(journal, [{"a": 1.0}, {"text": "x" * size}, {"a": 2.0}, {"text": "y" * size}])
    journal.close()
    entries, _, damaged = read_all(path)
    assert [entry.values for entry in entries] == [(1.0,), ("x" * size,), (2.0,), ("y" * size,)]
    assert damaged == 0


def test_new_keys_after_a_lost_schema_do_not_take_the_number_of_another(path: Path) -> None:
    journal = JournalWriter(path, Notices())
    write(journal, [{"a": 1.0}, {"b": 2.0}, {"c": 3.0}])
    journal.close()
    content = bytearray(path.read_bytes())
    for frame in frames.scan(content, len(frames.FILE_HEADER)).frames:
        if b'"keys":["b"]' in content[frame.start : frame.stop]:
            content[frame.start] ^= 0xFF
    path.write_bytes(content)
    journal = JournalWriter(path, Notices())
    write(journal, [{"new": 4.0}, {"c": 5.0}])
    journal.close()
    entries, _, damaged = read_all(path)
    assert [(e.keys, e.values) for e in entries] == [
        (("a",), (1.0,)),
        (("c",), (3.0,)),
        (("new",), (4.0,)),
        (("c",), (5.0,)),
    ]
    assert damaged == 2  # the two copies of the schema side by side, and its point


def test_more_kinds_of_calls_than_there_are_schemas_are_kept_all_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankzero.tracking.journal.MOST_SCHEMAS", 3)
    journal = JournalWriter(path, Notices())
    logged = [{f"key{n}": n / 7} for n in range(10)] * 2
    write(journal, logged)
    journal.close()
    entries, _, _ = read_all(path)
    assert [dict(zip(e.keys, e.values, strict=True)) for e in entries] == logged


LIMITED = (
    RUN
    + """
import resource
from rankzero.tracking import journal
journal.MOST_BACKLOG_BYTES = {backlog}
size = os.path.getsize(run.run.folder / "journal.rz")
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, unlimited[1]))
for step in range(500):
    run.log({{"loss": step / 7}}, step=step)
resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
run.end()
"""
)


def test_what_the_disk_refuses_is_written_when_it_takes_it_again_with_one_warning(
    tmp_path: Path,
) -> None:
    code, _, err = run_script(LIMITED.format(backlog=64 << 20), tmp_path)
    assert code == 0
    assert err.count("can't be written") == 1
    assert "Traceback" not in err
    record = the_run(tmp_path)
    assert record.series["loss"].values.tolist() == [step / 7 for step in range(500)]
    assert (record.status, record.skipped, record.calls) == ("finished", 0, 500)


def test_a_disk_that_stays_full_is_told_as_that_and_nothing_is_said_to_be_there_that_is_not(
    tmp_path: Path,
) -> None:
    for_ever = LIMITED.replace("resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)\n", "")
    code, _, err = run_script(for_ever.format(backlog=64 << 20), tmp_path)
    record = the_run(tmp_path)
    assert code == 0
    assert record.status == "crashed"  # its end is not on the disk
    assert f"lacks {500 - record.calls + 1} records" in err
    assert "has them all" not in err
    assert "Traceback" not in err


def test_what_is_more_than_memory_is_to_hold_is_counted_as_lost(tmp_path: Path) -> None:
    code, _, err = run_script(LIMITED.format(backlog=1000), tmp_path)
    record = the_run(tmp_path)
    lost = 500 - record.calls
    assert code == 0
    assert lost > 100
    assert f"lacks {lost} records" in err
    assert record.skipped == 0
    kept = record.series["loss"]
    assert kept.values.tolist() == [step / 7 for step in kept.steps.tolist()]


def test_a_run_whose_folder_is_taken_away_says_so_once_and_goes_on(
    tmp_path: Path, make_hub: Callable, warnings: Callable[[], list[str]]
) -> None:
    hub = make_hub()
    hub.init_trackers("p")
    hub.run.folder.rename(tmp_path / "elsewhere")
    for step in range(10):
        hub.log({"loss": 1.0}, step=step)
    folder = hub.run.folder
    hub.end()
    assert len([text for text in warnings() if str(folder) in text]) == 1
    assert the_run(tmp_path / "elsewhere").calls == 10
