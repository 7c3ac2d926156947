"""The main job: the examples on real data, on 1 to 3 processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rankzero.tracking.reader import RunRecord, find_runs, read_run

EXAMPLES = Path(__file__).parent.parent / "examples"


def call(*arguments: str | Path, folder: Path) -> str:
    """Run a Python program in ``folder``; return what it printed on standard output."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "RANKZERO_USE_CPU": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def launch(processes: int, *arguments: str | Path, folder: Path) -> str:
    options = ["--cpu", "--num_processes", str(processes)]
    return call("-m", "rankzero", "launch", *options, *arguments, folder=folder)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> dict[int, tuple[str, RunRecord]]:
    """The digits example on 1, 2 and 3 processes: what it printed, and its run."""
    results = {}
    for processes in (1, 2, 3):
        folder = tmp_path_factory.mktemp(f"digits{processes}")
        printed = launch(processes, EXAMPLES / "digits.py", "--project_dir", "demo", folder=folder)
        (run,) = find_runs(folder)
        results[processes] = (printed, read_run(run))
    return results


def test_digits_are_told_apart_as_well_on_any_number_of_processes(
    digits: dict[int, tuple[str, RunRecord]],
) -> None:
    accuracies = set()
    for printed, _ in digits.values():
        (figure,) = re.findall(r"accuracy on held-out digits: ([\d.]+)", printed)
        accuracies.add(figure)
    assert len(accuracies) == 1
    assert float(accuracies.pop()) > 0.95


def test_the_run_holds_every_value_once(digits: dict[int, tuple[str, RunRecord]]) -> None:
    for processes, (_, run) in digits.items():
        assert run.status == "finished"
        assert run.info.world_size == processes
        assert run.config["lr"] == 0.004
        assert run.series["train/loss"].steps.tolist() == list(range(1, 361))
        assert len(run.series["train/lr"].values) == 360
        for name in ("eval/accuracy", "train/samples_per_second"):
            assert run.series[name].steps.tolist() == list(range(30, 361, 30))
        alone = digits[1][1].series["train/lr"]
        assert run.series["train/lr"].values.tolist() == alone.values.tolist()


def test_tensorboard_shows_what_the_journal_holds(
    digits: dict[int, tuple[str, RunRecord]],
) -> None:
    _, run = digits[2]
    events = EventAccumulator(str(run.info.folder), size_guidance={"scalars": 0}).Reload()
    assert set(events.Tags()["scalars"]) == set(run.series)
    for name, series in run.series.items():
        shown = events.Scalars(name)
        assert [event.step for event in shown] == series.steps.tolist()
        assert [event.value for event in shown] == series.values.astype("float32").tolist()


def test_the_weights_are_saved_and_the_run_can_be_reviewed(
    digits: dict[int, tuple[str, RunRecord]],
) -> None:
    _, run = digits[2]
    folder = run.info.folder.parents[2]
    weights = torch.load(folder / "demo" / "digits.pt")
    assert [tuple(w.shape) for w in weights.values()][-2:] == [(10, 512), (10,)]
    review = call("-m", "rankzero", "review", "demo", folder=folder)
    for name in ("train/loss", "train/lr", "eval/accuracy", "train/samples_per_second"):
        assert name in review
    assert f"tensorboard --logdir demo/digits/{run.info.id}" in review


LOAD = """
import sys, torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
model.load_state_dict(torch.load("tutorial.pt"))
torch.manual_seed(0)
x = torch.randn(256, 4)
y = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
assert "rankzero" not in sys.modules
print(nn.functional.mse_loss(model(x), y).item())
"""


@pytest.mark.parametrize("processes", [None, 2], ids=["python", "launch on 2"])
def test_the_tutorial_trains_prints_once_and_saves_bare_weights(
    tmp_path: Path, processes: int | None
) -> None:
    script = EXAMPLES / "tutorial.py"
    if processes is None:
        printed = call(script, folder=tmp_path)
    else:
        printed = launch(processes, script, folder=tmp_path)
    assert re.findall(r"^epoch (\d+): loss", printed, re.MULTILINE) == [str(i) for i in range(10)]
    assert float(call("-c", LOAD, folder=tmp_path)) < 1.0
