"""Starting a run, logging to it, ending it, in every order that scripts come up with."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rankzero.tracking import Hub
from rankzero.tracking.reader import find_runs, read_run
from tests.tracking.scripts import RUN, START, run_script, the_run
from tests.tracking.trackers import Memory

Make = Callable[..., Hub]
Warnings = Callable[[], list[str]]


def steps_of(hub: Hub, log: Callable[[Hub], object]) -> list[int]:
    """Return the steps of a new run's points after ``log(hub)``."""
    hub.init_trackers("p")
    folder = hub.run.folder
    log(hub)
    hub.end()
    return read_run(folder).series["loss"].steps.tolist()


def test_what_is_logged_before_the_start_is_in_the_run_with_one_warning(
    make_hub: Make, warnings: Warnings
) -> None:
    hub = make_hub()
    value = torch.zeros(())
    hub.log({"loss": value}, step=7)
    value += 1
    hub.log(
        {"loss": value, "eval": {"acc": 1}}, step=np.int64(8), log_kwargs={"memory": {"shade": 1}}
    )
    hub.init_trackers("p")
    folder = hub.run.folder
    hub.log({"loss": 2.0}, step=9)
    hub.end()
    record = read_run(folder)
    assert record.series["loss"].values.tolist() == [0.0, 1.0, 2.0]
    assert record.series["loss"].steps.tolist() == [7, 8, 9]
    assert record.series["eval/acc"].values.tolist() == [1.0]
    assert record.series["loss"].times.tolist() == sorted(record.series["loss"].times)
    assert [entry.options for entry in Memory.made[0].entries] == [None, {"shade": 1}, None]
    assert [text for text in warnings() if "before init_trackers" in text] == warnings()
    assert len(warnings()) == 1


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        ({"values": 0.5}, TypeError, "write a dict of names and values"),
        ({"values": [("loss", 0.5)]}, TypeError, "write a dict of names and values"),
        ({"values": {"a": 1}, "step": "7"}, TypeError, "step='7'"),
        ({"values": {"a": 1}, "step": [7]}, TypeError, "not list"),
        ({"values": {"a": 1}, "step": math.nan}, ValueError, "step=nan"),
        ({"values": {"a": 1}, "step": math.inf}, ValueError, "step=inf"),
        ({"values": {"a": 1.0}, "step": 1 << 63}, ValueError, "64 bits"),
        ({"values": {"a": 1}, "log_kwargs": {"memroy": {}}}, ValueError, "Did you mean 'memory'"),
        ({"values": {"a": 1}, "log_kwargs": {"memory": {"shadw": 1}}}, ValueError, "'shade'"),
        ({"values": {"a": 1}, "log_kwargs": {"memory": 1}}, TypeError, r"log_kwargs\['memory'\]"),
        ({"values": {"a": 1}, "log_kwargs": "memory"}, TypeError, "log_kwargs must be a dict"),
    ],
)
def test_a_callers_mistake_is_an_error_at_the_call(
    make_hub: Make, started: bool, call: dict[str, Any], error: type[Exception], message: str
) -> None:
    hub = make_hub()
    if started:
        hub.init_trackers("p")
        hub.log({"a": 1.0}, step=0)
    with pytest.raises(error, match=message):
        hub.log(**call)
    if not started:
        hub.init_trackers("p")
    folder = hub.run.folder
    hub.end()
    assert read_run(folder).calls == int(started)


def test_a_run_that_is_never_started_makes_nothing_and_says_what_was_lost(tmp_path: Path) -> None:
    code = (
        START
        + "hub = tracking.Hub('memory', logging_dir='runs')\n[hub.log({'a': 1}) for _ in '123']"
    )
    found, _, err = run_script(code, tmp_path)
    assert found == 0
    assert "3 calls of log() were not recorded" in err
    assert list(tmp_path.iterdir()) == []


def test_what_is_logged_after_the_end_is_in_the_journal_with_one_warning(
    make_hub: Make, warnings: Warnings
) -> None:
    hub = make_hub()
    hub.init_trackers("p")
    folder, tracker = hub.run.folder, hub.get_tracker("memory")
    hub.log({"loss": 0.0}, step=4)
    hub.end()
    hub.log({"loss": 1.0})
    hub.log({"loss": torch.tensor(2.0), "text": "late"}, step=6)
    tracker.log({"loss": 3.0}, step=7)
    hub.end()
    record = read_run(folder)
    assert record.series["loss"].values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert record.series["loss"].steps.tolist() == [4, 4, 6, 7]
    assert (record.status, record.skipped) == ("finished", 0)
    assert len(Memory.made[0].entries) == 1
    (warning,) = warnings()
    assert "after the run had ended" in warning
    assert str(folder) in warning


def test_a_second_start_ends_the_first_run_and_makes_a_second(
    make_hub: Make, tmp_path: Path
) -> None:
    hub = make_hub()
    for number in range(3):
        hub.init_trackers("p", config={"number": number})
        hub.log({"loss": float(number)})
    hub.end()
    hub.end()
    records = [read_run(folder) for folder in find_runs(tmp_path)]
    assert sorted(r.config["number"] for r in records) == [0, 1, 2]
    for record in records:
        assert record.series["loss"].values.tolist() == [record.config["number"]]
        assert record.series["loss"].steps.tolist() == [0]
        assert record.status == "finished"
    assert [tracker.ends for tracker in Memory.made] == [[("finished", None)]] * 3


def test_an_end_without_a_start_does_nothing(make_hub: Make, tmp_path: Path) -> None:
    hub = make_hub()
    hub.end()
    hub.end()
    assert list(tmp_path.iterdir()) == []


def test_the_end_says_failed_only_for_an_exception_that_came_up_in_the_run(
    make_hub: Make, tmp_path: Path
) -> None:
    hub = make_hub()
    try:
        raise ValueError("before")
    except ValueError:
        hub.init_trackers("before")
        hub.end()
    hub.init_trackers("during")
    try:
        raise ValueError("during")
    except ValueError:
        hub.end()
    before, during = (the_run(tmp_path / "runs" / name) for name in ("before", "during"))
    assert (before.status, before.error) == ("finished", None)
    assert (during.status, during.error) == ("failed", "ValueError: during")


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([None, None, None], [0, 1, 2]),
        ([5, None, None, 7, None], [5, 5, 5, 7, 7]),
        ([None, 5, None], [0, 5, 5]),
        ([10, 3, 3, 12, -4], [10, 3, 3, 12, -4]),
        ([torch.tensor(3), np.int32(4), True, 6.0, np.float64(7.0)], [3, 4, 1, 6, 7]),
        ([torch.tensor([3]), np.array(4), torch.tensor(5.0), np.array([6])], [3, 4, 5, 6]),
        ([(1 << 63) - 1, -(1 << 63)], [(1 << 63) - 1, -(1 << 63)]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("usual", [True, False])
def test_steps_are_kept_as_given_in_the_order_of_the_calls(
    make_hub: Make, warnings: Warnings, given: list[Any], steps: list[int], usual: bool
) -> None:
    values = {"loss": 0.5} if usual else {"loss": np.float32(0.5)}
    assert steps_of(make_hub(), lambda hub: [hub.log(values, step) for step in given]) == steps
    assert Memory.made[0].steps() == steps
    assert [entry.given for entry in Memory.made[0].entries] == [s is not None for s in given]
    assert warnings() == []


def test_a_step_between_two_whole_numbers_is_cut_off_with_one_warning(
    make_hub: Make, warnings: Warnings
) -> None:
    assert steps_of(
        make_hub(), lambda hub: [hub.log({"loss": 1.0}, step) for step in (1.5, 2.5)]
    ) == [1, 2]
    (warning,) = warnings()
    assert "1 is used" in warning


def test_a_number_that_outgrows_64_bits_leaves_the_count_of_steps_alone(make_hub: Make) -> None:
    numbers = [1, 1 << 70, 2, -(1 << 70), 3]
    hub = make_hub()
    steps = steps_of(hub, lambda hub: [hub.log({"n": n, "loss": 0.5}) for n in numbers])
    assert steps == [0, 1, 2, 3, 4]
    assert [entry.values[0] for entry in Memory.made[0].entries] == numbers


def test_a_call_without_values_is_not_a_point(make_hub: Make) -> None:
    hub = make_hub()
    hub.init_trackers("p")
    folder = hub.run.folder
    hub.log({})
    hub.log({"nested": {}})
    hub.end()
    assert read_run(folder).calls == 0


@pytest.mark.parametrize("log_with", [None, [], ()])
def test_without_a_tracker_nothing_is_made_and_every_call_is_taken(
    make_hub: Make, tmp_path: Path, log_with: Any
) -> None:
    hub = make_hub(log_with)
    hub.log({"loss": 1.0})
    hub.init_trackers("p", config={"lr": 0.1}, init_kwargs={"wandb": {"entity": "x"}})
    hub.log({"loss": 1.0}, step=1, log_kwargs={"wandb": {}})
    assert (hub.trackers, hub.run) == ([], None)
    hub.end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["a/b", "..", " ", "größe", "x" * 500, "C:\\x", "nul\x00", "\ud800"]
)
def test_any_project_name_makes_one_folder_and_is_kept_as_it_is(
    make_hub: Make, tmp_path: Path, name: str
) -> None:
    hub = make_hub()
    hub.init_trackers(name)
    folder = hub.run.folder
    hub.end()
    assert folder.parent.parent == tmp_path / "runs"
    assert read_run(folder).info.project == name


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_project_name_that_is_none_is_turned_down(make_hub: Make, name: Any) -> None:
    with pytest.raises(TypeError, match="project_name="):
        make_hub().init_trackers(name)


def test_a_folder_that_cannot_be_made_sends_the_run_to_another_with_a_warning(
    make_hub: Make, tmp_path: Path, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "runs").write_text("a file, not a folder")
    hub = make_hub()
    hub.init_trackers("p", config={"lr": 0.1})
    hub.log({"loss": 1.0})
    folder = hub.run.folder
    hub.end()
    assert folder.is_relative_to(tmp_path)
    assert read_run(folder).calls == 1
    (warning,) = warnings()
    assert str(folder) in warning


def test_where_nothing_can_be_written_training_goes_on_with_a_warning(
    make_hub: Make, tmp_path: Path, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    (tmp_path / "runs").write_text("a file, not a folder")
    hub = make_hub()
    hub.init_trackers("p", config={"lr": 0.1})
    hub.log({"loss": 1.0})
    assert not hub.get_tracker("memory", unwrap=True).shout("a")
    hub.end()
    assert ["No run can be recorded" in text for text in warnings()] == [True]


def test_two_launches_in_one_second_make_two_folders(tmp_path: Path) -> None:
    runs = [Hub("memory", tmp_path, launch_id="20261201-000000-abcdef") for _ in range(2)]
    for hub in runs:
        hub.init_trackers("p")
    assert len({hub.run.folder for hub in runs}) == len(find_runs(tmp_path)) == 2
    for hub in runs:
        hub.end()


def test_what_identifies_a_run_is_in_its_record(tmp_path: Path) -> None:
    run_script(RUN + "run.log({'loss': 1.0})", tmp_path)
    info = the_run(tmp_path).info
    assert (info.project, info.id, info.name) == ("p", info.folder.name, info.folder.name)
    assert (info.command, info.trackers, info.world_size) == (["-c"], ["memory"], 1)
    assert info.pid > 0
    assert info.started <= the_run(tmp_path).series["loss"].times[0]
    assert {"python", "rankzero"} <= set(info.versions)
