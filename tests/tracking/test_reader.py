"""Runs read back from their journals: finished, live, failed, damaged, moved."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rankzero.tracking import Hub, frames
from rankzero.tracking.journal import JournalWriter
from rankzero.tracking.notices import Notices
from rankzero.tracking.reader import find_runs, read_run
from tests.tracking.journals import MIXED, write, write_run
from tests.tracking.scripts import RUN, run_script

Make = Callable[..., Hub]


@pytest.fixture
def folder(make_hub: Make) -> Path:
    """Return the folder of a finished run."""
    hub = make_hub()
    hub.init_trackers("digits", config={"lr": 0.1, "optim": {"name": "sgd"}})
    for step in range(10):
        hub.log(
            {"loss": 1 / (step + 1), "ok": step > 4, "n": step, "note": f"at {step}"}, step=step
        )
    hub.log({"none": None, "huge": 1 << 2000, "tiny": -(1 << 2000), "nan": math.nan}, step=9)
    found = hub.run.folder
    hub.end()
    return found


def test_a_finished_run_is_read_whole_from_its_folder_or_its_journal(folder: Path) -> None:
    for path in (folder, str(folder), folder / "journal.rz"):
        record = read_run(path)
        assert (record.status, record.error, record.calls, record.skipped) == (
            "finished",
            None,
            11,
            0,
        )
        assert (record.info.project, record.info.folder) == ("digits", folder)
        assert record.config == {"lr": 0.1, "optim": {"name": "sgd"}}
        assert list(record.series) == ["loss", "ok", "n", "huge", "tiny", "nan"]
        loss = record.series["loss"]
        assert (loss.steps.dtype, loss.values.dtype) == (np.int64, np.float64)
        assert loss.values.tolist() == [1 / (step + 1) for step in range(10)]
        assert loss.steps.tolist() == list(range(10))
        assert record.series["ok"].values.tolist() == [0.0] * 5 + [1.0] * 5
        assert record.series["huge"].values.tolist() == [math.inf]
        assert record.series["tiny"].values.tolist() == [-math.inf]
        assert [(text.step, text.text) for text in record.texts["note"]] == [
            (step, f"at {step}") for step in range(10)
        ]
        assert record.info.started <= loss.times[0] <= loss.times[-1] <= record.ended


def test_a_live_run_is_running_until_it_ends(make_hub: Make) -> None:
    hub = make_hub()
    hub.init_trackers("p")
    folder = hub.run.folder
    for step in range(3):
        hub.log({"loss": 1.0}, step=step)
        record = read_run(folder)
        assert (record.status, record.calls) == ("running", step + 1)
        assert record.ended == record.series["loss"].times[-1]
    hub.end()
    assert read_run(folder).status == "finished"


def test_a_run_on_another_machine_counts_as_running_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.rz"
    journal = JournalWriter(path, Notices())
    journal.write_json(frames.START, {"id": "r", "name": "r", "project": "p", "host": "elsewhere"})
    write(journal, [{"loss": 1.0}])
    journal.close()
    assert read_run(path).status == "running"
    os.utime(path, (1e9, 1e9))
    assert read_run(path).status == "crashed"


def test_a_folder_may_be_moved_and_renamed(folder: Path, tmp_path: Path) -> None:
    before = read_run(folder)
    moved = tmp_path / "archive" / "best"
    shutil.move(folder, moved)
    record = read_run(moved)
    assert record.info.folder == moved
    assert (record.info.id, record.info.project) == (before.info.id, "digits")
    assert record.series["loss"].values.tolist() == before.series["loss"].values.tolist()


def test_a_run_whose_start_is_lost_is_called_by_its_folder(tmp_path: Path) -> None:
    run = tmp_path / "digits" / "20261201-000000-abcdef"
    run.mkdir(parents=True)
    write_run(run / "journal.rz", MIXED)
    content = bytearray((run / "journal.rz").read_bytes())
    content[len(frames.FILE_HEADER) + 20] ^= 0xFF
    (run / "journal.rz").write_bytes(content)
    record = read_run(run)
    assert (record.info.id, record.info.project) == (run.name, "digits")
    assert (record.status, record.calls, record.skipped) == ("finished", len(MIXED), 1)


def test_a_run_that_lost_its_end_has_crashed(folder: Path) -> None:
    journal = folder / "journal.rz"
    journal.write_bytes(journal.read_bytes()[:-5])
    record = read_run(folder)
    assert (record.status, record.calls, record.skipped) == ("crashed", 11, 1)
    assert record.ended == record.series["nan"].times[-1]


@pytest.mark.parametrize("content", [b"", b"RZ", frames.FILE_HEADER, b"\0" * 5000, b"text" * 100])
def test_a_journal_that_holds_nothing_is_read_as_a_run_without_values(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "journal.rz").write_bytes(content)
    os.utime(tmp_path / "journal.rz", (1e9, 1e9))
    record = read_run(tmp_path)
    assert (record.status, record.calls, record.series, record.texts) == ("crashed", 0, {}, {})
    assert record.skipped == (len(content) > len(frames.FILE_HEADER))
    assert record.info.id == tmp_path.name


@pytest.mark.parametrize("path", ["", "nosuch", "nosuch/journal.rz"])
def test_where_there_is_no_run_the_error_names_the_path(tmp_path: Path, path: str) -> None:
    with pytest.raises(FileNotFoundError, match="there is no run at"):
        read_run(tmp_path / path)


def test_runs_are_found_in_any_folder_above_them_newest_last(tmp_path: Path) -> None:
    names = ["b/20261203-000000-aaaaaa", "a/20261201-000000-ffffff", "20261202-000000-cccccc"]
    for name in names:
        (tmp_path / name).mkdir(parents=True)
        write_run(tmp_path / name / "journal.rz", MIXED)
    found = [tmp_path / names[1], tmp_path / names[2], tmp_path / names[0]]
    assert find_runs(tmp_path) == find_runs(str(tmp_path)) == found
    assert find_runs(found[0]) == [found[0]]
    assert find_runs(found[0] / "journal.rz") == [found[0]]
    assert find_runs(tmp_path / "nosuch") == []
    (tmp_path / "file").write_text("")
    assert find_runs(tmp_path / "file") == []


def test_runs_of_all_ends_are_found_side_by_side(tmp_path: Path) -> None:
    for ending in ("", "1 / 0", "os.kill(os.getpid(), signal.SIGTERM)", "os._exit(0)"):
        run_script(RUN + "run.log({'loss': 1.0})\n" + ending, tmp_path)
    statuses = [read_run(found).status for found in find_runs(tmp_path)]
    assert sorted(statuses) == ["crashed", "failed", "finished", "killed"]
