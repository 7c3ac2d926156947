"""A real TensorBoard server shows what was logged."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from rankzero.tracking import init
from tests.ranks import free_port

POINTS = 1500  # more than the server samples unless told not to


class Runs(NamedTuple):
    folder: Path
    first: str
    second: str


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return two runs in a folder, and the names TensorBoard gives them; the second has failed."""
    folder = tmp_path_factory.mktemp("runs")
    with init("digits", config={"lr": 0.1, "optim": {"name": "sgd"}}, logging_dir=folder) as run:
        first = f"digits/{run.run.id}"
        for step in range(POINTS):
            run.log({"train/loss": 1 / (step + 1)}, step=step)
        run.log({"odd": float("nan"), "note": "hello *world*"}, step=7)
    run = init("digits", config={"lr": 0.2, "optim": {"name": "adam"}}, logging_dir=folder)
    second = f"digits/{run.run.id}"
    run.log({"train/loss": 0.5}, step=0)
    run.end("failed", "ValueError: x")
    return Runs(folder, first, second)


@pytest.fixture(scope="module")
def address(runs: Runs) -> Iterator[str]:
    """Return the address of a server that has read the runs before it answers."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(runs.folder)]
    command += ["--host", "127.0.0.1", "--port", str(free_port()), "--load_fast=false"]
    command += [
        "--reload_task=blocking",
        "--reload_interval=0",
        "--samples_per_plugin=scalars=5000",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=runs.folder) as server:
        said = []
        for line in server.stderr:  # ends with the process, and the test with its time limit
            said.append(line)
            if "http://127.0.0.1:" in line:
                yield line[line.index("http://") :].split()[0].rstrip("/")
                break
        server.terminate()
        server.wait(30)
        assert "http://" in said[-1], "".join(said)


def ask(address: str, path: str, body: Any = None, **query: str) -> Any:
    """Return the server's answer, from JSON."""
    data = None if body is None else json.dumps(body).encode()
    url = f"{address}/data/{path}?{urllib.parse.urlencode(query)}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_scalars_and_text_are_shown(address: str, runs: Runs) -> None:
    assert sorted(ask(address, "runs")) == sorted(runs[1:])
    tags = ask(address, "plugin/scalars/tags")
    assert set(tags[runs.first]) == {"odd", "train/loss"}
    assert set(tags[runs.second]) == {"train/loss"}
    scalars = "plugin/scalars/scalars"
    points = ask(address, scalars, run=runs.first, tag="train/loss")
    assert [step for _, step, _ in points] == list(range(POINTS))
    assert [value for _, _, value in points] == [
        float(np.float32(1 / (step + 1))) for step in range(POINTS)
    ]
    ((_, step, value),) = ask(address, scalars, run=runs.first, tag="odd")
    assert (step, value) == (7, "NaN")
    (tag,) = [tag for tag in ask(address, "plugin/text/tags")[runs.first] if "note" in tag]
    (text,) = ask(address, "plugin/text/text", run=runs.first, tag=tag)
    assert text["step"] == 7
    assert "<p>hello <em>world</em></p>" in text["text"]


def test_the_table_of_hyperparameters_has_both_runs_with_their_settings_and_metrics(
    address: str,
) -> None:
    allowed = ["STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING", "STATUS_UNKNOWN"]
    request = {"experimentName": "", "startIndex": 0, "sliceSize": 10, "allowedStatuses": allowed}
    experiment = ask(address, "plugin/hparams/experiment", {"experimentName": ""})
    names = {info["name"] for info in experiment["hparamInfos"]}
    assert names == {"lr", "optim/name"}
    metrics = [info["name"] for info in experiment["metricInfos"]]
    columns = [{"metric": name} for name in metrics] + [{"hparam": name} for name in names]
    groups = ask(address, "plugin/hparams/session_groups", {**request, "colParams": columns})
    shown = {
        group["hparams"]["lr"]: (
            group["hparams"]["optim/name"],
            [session["status"] for session in group["sessions"]],
            {v["name"]["tag"]: v["value"] for v in group["metricValues"]},
        )
        for group in groups["sessionGroups"]
    }
    assert {lr: row[:2] for lr, row in shown.items()} == {
        0.1: ("sgd", ["STATUS_SUCCESS"]),
        0.2: ("adam", ["STATUS_FAILURE"]),
    }
    assert shown[0.2][2]["train/loss"] == 0.5
