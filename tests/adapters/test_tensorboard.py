"""The TensorBoard adapter: what was logged is what TensorBoard's own reader reads."""

from __future__ import annotations

import argparse
import enum
import json
import math
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np
import pytest
import torch

from rankzero.adapters.tensorboard import TensorBoardAdapter
from rankzero.tracking import Hub
from rankzero.tracking.reader import read_run
from tests.adapters.events import event_files, hparams, load, settings, texts

Make = Callable[..., Hub]
Warnings = Callable[[], list[str]]
NAN, INF = math.nan, math.inf


class Mode(enum.Enum):
    FAST = "fast"


def bits(values: object) -> list[int]:
    """Return the bits of values as TensorBoard keeps them, in 32."""
    with np.errstate(over="ignore"):
        return np.asarray(values, dtype=np.float64).astype(np.float32).view(np.int32).tolist()


def test_scalars_come_back_with_their_values_steps_and_times(
    make_run: Make, tmp_path: Path, warnings: Warnings
) -> None:
    run = make_run()
    folder = run.run.folder
    values = [0.1, -0.0, 1 / 3, NAN, INF, -INF, 1e300, 5e-324, 2**53 + 1, 1 << 2000, True]
    for step, value in enumerate(values):
        run.log({"loss": value, "other": float(step)}, step=3 * step)
    run.log({"tensor": torch.tensor(0.1), "array": np.array([0.1])}, step=-5)
    run.end()
    events, record = load(tmp_path), read_run(folder)
    logged = [INF if value == 1 << 2000 else float(value) for value in values]
    assert bits([event.value for event in events.Scalars("loss")]) == bits(logged)
    for tag in ("loss", "other", "tensor", "array"):
        assert [event.step for event in events.Scalars(tag)] == record.series[tag].steps.tolist()
        assert [e.wall_time for e in events.Scalars(tag)] == record.series[tag].times.tolist()
        assert bits([e.value for e in events.Scalars(tag)]) == bits(record.series[tag].values)
    assert events.Tags()["scalars"] == ["loss", "other", "tensor", "array"]
    assert warnings() == []


def test_there_is_one_event_file_in_the_runs_folder(make_run: Make, tmp_path: Path) -> None:
    run = make_run(config={"lr": 0.1})
    run.log({"loss": 0.5, "text": "hello", "group": {"a": 1.0}}, step=1)
    run.log({"loss": 0.5}, step=2, log_kwargs={"tensorboard": {"new_style": False}})
    folder = run.run.folder
    run.end()
    (path,) = event_files(tmp_path)
    assert path.parent == folder
    assert sorted(p.name for p in folder.iterdir() if p != path) == [
        "config.yaml",
        "cursors",
        "journal.rz",
    ]


def test_nested_values_are_grouped_tags(make_run: Make, tmp_path: Path) -> None:
    run = make_run()
    run.log({"eval": {"acc": 0.5, "deep": {"f1": 0.25}}, "loss": 1.0}, step=1)
    run.end()
    events = load(tmp_path)
    assert events.Tags()["scalars"] == ["eval/acc", "eval/deep/f1", "loss"]
    assert [(e.step, e.value) for e in events.Scalars("eval/deep/f1")] == [(1, 0.25)]


NAMES = [
    "",
    " ",
    "/a",
    "a b",
    "größe",
    "timing(s)/gen",
    "P@5",
    "a:b",
    "a\nb",
    "100%",
    "\\",
    "\ud800",
]


@pytest.mark.filterwarnings("error")
def test_any_name_is_a_tag(make_run: Make, tmp_path: Path, warnings: Warnings) -> None:
    run = make_run()
    run.log({name: float(n) for n, name in enumerate(NAMES)}, step=1)
    run.log({name: f"text {n}" for n, name in enumerate(NAMES)}, step=1)
    run.end()
    events = load(tmp_path)
    for n, name in enumerate(NAMES):
        tag = name.encode("utf-8", "backslashreplace").decode()
        assert [event.value for event in events.Scalars(tag)] == [n]
        assert texts(events, tag) == [(1, f"text {n}")]
    assert warnings() == []


def test_ten_thousand_points_are_all_there_in_order(make_run: Make, tmp_path: Path) -> None:
    run = make_run()
    values = np.random.default_rng(0).normal(size=10_000)
    for step, value in enumerate(values.tolist()):
        run.log({"loss": value, "double": 2 * value}, step=step)
    run.end()
    events = load(tmp_path)
    for tag, logged in (("loss", values), ("double", 2 * values)):
        points = events.Scalars(tag)
        assert [point.step for point in points] == list(range(10_000))
        assert bits([point.value for point in points]) == bits(logged)


def test_text_is_kept_beside_numbers_of_the_same_call(make_run: Make, tmp_path: Path) -> None:
    run = make_run()
    run.log({"sample": "first *line*\nsecond", "loss": 0.5, "none": None}, step=2)
    run.log({"sample": "größer \ud800", "object": [1, 2]}, step=3)
    run.end()
    events = load(tmp_path)
    assert texts(events, "sample") == [(2, "first *line*\nsecond"), (3, "größer \\ud800")]
    assert texts(events, "object") == [(3, "[1, 2]")]
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(2, 0.5)]
    assert events.Tags()["scalars"] == ["loss"]


def test_settings_of_any_kind_are_hyperparameters_and_text(
    make_run: Make, tmp_path: Path, warnings: Warnings
) -> None:
    config = {
        "lr": 1e-3,
        "epochs": 3,
        "amp": True,
        "sched": None,
        "prompts": ["a", "ä"],
        "optim": {"name": "adam", "betas": (0.9, 0.95), "deep": {"eps": 1e-8}},
        "out": PurePosixPath("x"),
        "mode": Mode.FAST,
        "dtype": torch.bfloat16,
        "ns": argparse.Namespace(a=1),
        "empty": {},
        "nan": NAN,
        "huge": 1 << 2000,
        "long": "x" * 7000,
    }
    run = make_run(config=config)
    run.log({"loss": 0.5}, step=1)
    run.end()
    events = load(tmp_path)
    expected = {
        "lr": 1e-3,
        "epochs": 3.0,
        "amp": True,
        "sched": "None",
        "prompts": '["a", "ä"]',
        "optim/name": "adam",
        "optim/betas": "[0.9, 0.95]",
        "optim/deep/eps": 1e-8,
        "out": "x",
        "mode": "fast",
        "dtype": "torch.bfloat16",
        "ns/a": 1.0,
        "empty": "{}",
        "nan": "nan",
        "huge": str(1 << 2000),
        "long": "x" * 7000,
    }
    assert settings(events) == expected
    assert type(settings(events)["amp"]) is bool
    ((step, text),) = texts(events, "config")
    shown = json.loads("\n".join(line.removeprefix("    ") for line in text.split("\n")))
    assert step == 0
    assert (shown["lr"], shown["sched"], shown["optim"]["betas"]) == (1e-3, None, [0.9, 0.95])
    assert warnings() == []


@pytest.mark.parametrize(
    ("status", "error", "result"),
    [("finished", None, 1), ("failed", "ValueError: x\nof ü", 2), ("killed", "SIGTERM", 2)],
)
def test_how_the_run_ended_is_there(
    make_run: Make, tmp_path: Path, status: str, error: str | None, result: int
) -> None:
    run = make_run(config={"lr": 0.1})
    started = run.run.started
    run.log({"loss": 0.5}, step=1)
    run.end(status, error)
    events = load(tmp_path)
    start, end = hparams(events, "session_start_info"), hparams(events, "session_end_info")
    assert (start.start_time_secs, start.group_name) == (started, read_run_id(tmp_path))
    assert end.status == result
    assert end.end_time_secs >= started
    if status != "finished":
        assert texts(events, "status") == [(0, f"{status}: {error}")]
    else:
        assert "status/text_summary" not in events.Tags()["tensors"]


def read_run_id(folder: Path) -> str:
    return event_files(folder)[0].parent.name


def test_options_reach_the_writer(make_run: Make, tmp_path: Path) -> None:
    run = make_run(init_kwargs={"tensorboard": {"filename_suffix": ".mine", "flush_secs": 5}})
    run.log({"loss": 0.5}, step=1, log_kwargs={"tensorboard": {"walltime": 12.5}})
    assert run.get_tracker("tensorboard").flush_secs == 5
    run.end()
    assert event_files(tmp_path)[0].suffix == ".mine"
    assert [(e.wall_time, e.value) for e in load(tmp_path).Scalars("loss")] == [(12.5, 0.5)]


def test_an_option_it_does_not_know_is_turned_down(make_run: Make) -> None:
    message = r"_kwargs\['tensorboard'\] has an unknown option 'flsh'. Known: "
    with pytest.raises(ValueError, match=f"init{message}'flush_secs'"):
        make_run(init_kwargs={"tensorboard": {"flsh": 1}})
    with pytest.raises(
        TypeError, match=r"\['tensorboard'\]\['flush_secs'\]='often' is not a number"
    ):
        make_run(init_kwargs={"tensorboard": {"flush_secs": "often"}})
    run = make_run()
    with pytest.raises(ValueError, match=f"log{message}'walltime'"):
        run.log({"loss": 0.5}, log_kwargs={"tensorboard": {"flsh": 1}})


def test_its_library_is_not_imported_before_the_run_starts() -> None:
    adapter = TensorBoardAdapter(None, {"flush_secs": 3})
    assert adapter.native is None
    assert TensorBoardAdapter.is_installed()
    assert TensorBoardAdapter.conveniences() == {"writer": ""}
