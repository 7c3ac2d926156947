"""The event file's writer: shared with the script, closed by it, refused by the disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rankzero.tracking import Hub
from rankzero.tracking.reader import read_run
from tests.adapters.events import event_files, load, load_file, texts

Make = Callable[..., Hub]
Warnings = Callable[[], list[str]]


def test_the_scripts_own_writer_writes_into_the_same_file(make_run: Make, tmp_path: Path) -> None:
    run = make_run()
    tracker = run.get_tracker("tensorboard")
    writer = run.get_tracker("tensorboard", unwrap=True)
    assert tracker.tracker is tracker.writer is writer
    run.log({"loss": 0.5}, step=1)
    writer.add_scalar("own", 2.5, 7)
    tracker.add_text("note", "by hand", 7)
    tracker.log_images({"samples": np.zeros((2, 3, 4, 4), dtype=np.uint8)}, step=7)
    run.end()
    events = load(tmp_path)
    assert [(e.step, e.value) for e in events.Scalars("own")] == [(7, 2.5)]
    assert texts(events, "note") == [(7, "by hand")]
    assert [(e.step, e.width, e.height) for e in events.Images("samples")] == [(7, 8, 4)]
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(1, 0.5)]


def test_a_writer_that_the_script_closes_does_not_stop_the_rest(
    make_run: Make, tmp_path: Path, warnings: Warnings
) -> None:
    run = make_run()
    run.log({"loss": 0.5}, step=1)
    run.get_tracker("tensorboard", unwrap=True).close()
    run.log({"loss": 0.25}, step=2)
    run.end()
    found = [load_file(path) for path in event_files(tmp_path)]
    points = [
        p for e in found for p in (e.Scalars("loss") if "loss" in e.Tags()["scalars"] else [])
    ]
    assert sorted((point.step, point.value) for point in points) == [(1, 0.5), (2, 0.25)]
    assert warnings() == []


def test_a_writer_closed_just_before_the_end_makes_no_second_file(
    make_run: Make, tmp_path: Path
) -> None:
    run = make_run()
    writer = run.get_tracker("tensorboard", unwrap=True)
    writer.add_scalar("own", 1.0, 0)
    writer.close()
    run.end()
    assert [e.value for e in load(tmp_path).Scalars("own")] == [1.0]


# TensorBoard's own thread ends with the error, and says so beside our warning.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_a_full_disk_is_one_warning_and_all_is_delivered_once_there_is_room(
    make_run: Make, tmp_path: Path, warnings: Warnings
) -> None:
    run = make_run(config={"lr": 0.1})
    assert run.get_tracker("tensorboard", unwrap=True)
    run.log({"loss": 0.0}, step=0)
    (full,) = event_files(tmp_path)
    os.link(full, tmp_path / "before")
    (tmp_path / "full").symlink_to("/dev/full")
    (tmp_path / "full").replace(full)  # from here on, every write to it is refused
    for step in range(1, 3000):
        run.log({"loss": step / 7}, step=step)
    run.log({"note": "the end"}, step=3000)
    folder = run.run.folder
    run.end()
    assert full not in event_files(tmp_path)
    (tmp_path / "before").rename(full)
    found = [load_file(path) for path in event_files(tmp_path)]
    points = {
        (p.step, p.value) for e in found for p in (e.Scalars("loss") if e.Tags()["scalars"] else [])
    }
    assert sorted(points) == [(step, float(np.float32(step / 7))) for step in range(3000)]
    assert texts(found[-1], "note") == [(3000, "the end")]
    assert read_run(folder).calls == 3001
    assert ["No space left on device" in text for text in warnings()] == [True]
