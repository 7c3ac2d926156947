"""A run as it is printed."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from rankzero import tracking
from rankzero.review.terminal import format_duration, format_value, print_review
from rankzero.tracking.reader import RunRecord, Series, Text, find_runs, read_run
from rankzero.tracking.run import RunInfo


def printed(records: list[RunRecord], root: Path, width: int = 80, encoding: str = "utf-8") -> str:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    print_review(records, root, Console(file=file, width=width, highlight=False))
    file.flush()
    return raw.getvalue().decode(encoding)


def record(folder: Path, **changes: object) -> RunRecord:
    info = RunInfo(id="one", name="one", project="digits", folder=folder, started=100.0, host="h")
    made = RunRecord(info=info, status="finished", ended=112.25)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def series(values: list[float]) -> Series:
    count = len(values)
    return Series(np.arange(count), np.arange(float(count)), np.array(values))


def test_a_run_shows_final_and_best_values_and_a_curve(tmp_path: Path) -> None:
    metrics = {"loss": series([4.0, 1.0, 2.0]), "lr": series([0.1, 0.2, 0.1])}
    lines = printed([record(tmp_path, series=metrics, calls=3)], tmp_path).splitlines()
    assert lines[0].split() == ["digits", "one", "finished"]
    assert any(line.split() == ["duration", "12.2", "s"] for line in lines)
    assert any("0 to 2, 3 calls" in line for line in lines)
    table = [line.split() for line in lines]
    assert ["loss", "2", "1", "@1", "3", "█▁▃"] in table
    assert ["lr", "0.1", "0.1..0.2", "3", "▁█▁"] in table


def test_a_run_read_back_from_its_journal_names_the_command_for_tensorboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"opt": {"lr": 0.1}, "layers": [1, 2]}
    with tracking.init("some project", config=settings, logging_dir="my runs") as run:
        run.log({"loss": 1.0, "note": "it\nbegan"}, step=0)
    (folder,) = find_runs("my runs")
    text = printed([read_run(folder)], Path("my runs"))
    assert "opt/lr=0.1" in text
    assert "note (step 0, 1 in all): it began" in text
    command = text.splitlines()[-1]
    assert command == f"  tensorboard --logdir 'my runs/some project/{folder.name}'"


def test_what_went_wrong_is_said(tmp_path: Path) -> None:
    broken = record(
        tmp_path,
        series={"loss": series([1.0, math.nan, math.inf])},
        status="crashed",
        error="ValueError: [bold]no markup[/bold]",
        skipped=2,
    )
    text = printed([broken], tmp_path, width=200)
    assert "loss: 2 of 3 values are NaN or infinite, the first at step 1" in text
    assert "the process is gone" in text
    assert "ValueError: [bold]no markup[/bold]" in text
    assert "2 damaged stretches" in text


def test_a_run_that_logged_nothing_is_shown(tmp_path: Path) -> None:
    text = printed([record(tmp_path)], tmp_path)
    assert "no metric was logged" in text
    assert "tensorboard" not in text


def test_several_runs_are_a_table_before_the_newest(tmp_path: Path) -> None:
    runs = [record(tmp_path), record(tmp_path, status="failed", series={"loss": series([1.0])})]
    lines = printed(runs, tmp_path).splitlines()
    assert lines[0].split()[:4] == ["project", "run", "status", "duration"]
    assert lines[1].split() == ["digits", "one", "finished", "12.2", "s", "-", "0"]
    assert lines[2].split() == ["digits", "one", "failed", "12.2", "s", "0", "1"]
    assert lines[4].split() == ["digits", "one", "failed"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_lines_keep_to_the_width_and_long_names_lose_no_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.chdir(tmp_path)
    names = [f"a_rather_long_name_of_a_metric/number_{i}" for i in range(3)]
    metrics = {name: series([float(i) for i in range(500)]) for name in names}
    made = record(tmp_path / "run", series=metrics, config={"text": "word " * 100})
    made.info.folder.mkdir()
    lines = printed([made], tmp_path, width).splitlines()
    assert max(map(len, lines)) <= width
    folded = "".join(line.split(" ")[0] for line in lines)
    for name in names:
        assert name in folded


def test_a_terminal_that_knows_only_ascii_gets_only_ascii(tmp_path: Path) -> None:
    text = printed(
        [record(tmp_path, series={"loss": series([2.0, 1.0])})], tmp_path, encoding="ascii"
    )
    assert "#_" in text


def test_texts_are_shortened_and_only_the_last_is_shown(tmp_path: Path) -> None:
    texts = {"sample": [Text(0, 0.0, "first"), Text(7, 0.0, "x" * 1000)]}
    text = printed([record(tmp_path, texts=texts)], tmp_path, width=300)
    assert "sample (step 7, 2 in all): " in text
    assert "x" * 197 + "..." in text
    assert "first" not in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (59.9, "59.9 s"),
        (60.0, "1 min 00 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 00 min"),
        (86399.0, "23 h 59 min"),
        (90061.0, "1 d 01 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (360.0, "360"),
        (0.123456789, "0.12346"),
        (1e-9, "1e-09"),
        (123456789.0, "1.2346e+08"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_values(value: float, text: str) -> None:
    assert format_value(value) == text
