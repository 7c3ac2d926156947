"""``rankzero review``: any run on any terminal, and one line where there is none."""

from __future__ import annotations

import math
import re
import shlex
import shutil
from pathlib import Path

import pytest

from rankzero import tracking
from tests.cli.commands import assert_one_line, rankzero

LONG_NAME = "evaluation/a metric/with a name/that is/longer than/a line of the terminal/has room"
COLOUR = r"\x1b\[([\d;]*;)?3\dm"
CONFIG = {"lr": 0.1, "schedule": {"name": "cosine " * 20}, **{f"option {n}": n for n in range(20)}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with ``runs``, a folder of two runs; the second one failed."""
    folder = tmp_path_factory.mktemp("work")
    with tracking.init("first project", logging_dir=folder / "runs", config={"lr": 1}) as hub:
        hub.log({"loss": 2.5}, step=0)
    with pytest.raises(RuntimeError, match="diverged"):
        failing_run(folder / "runs")
    return folder


def failing_run(folder: Path) -> None:
    with tracking.init("größe", config=CONFIG, logging_dir=folder) as hub:
        for step in range(100):
            values = {"train/loss": 1 / (step + 1), LONG_NAME: -1e-7 * step, "größe": math.nan}
            hub.log(values, step=step)
        hub.log({"sample": "a text that is far longer than a line " * 9}, step=100)
        raise RuntimeError("the loss diverged, " * 8)


def run_folder(runs: Path, project: str) -> Path:
    (journal,) = runs.glob(f"runs/{project}/*/journal.rz")
    return journal.parent.relative_to(runs)


def shown(*arguments: object, **options: object) -> str:
    run = rankzero("review", *arguments, **options)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def test_a_run_is_found_by_its_folder_and_by_its_journal(runs: Path) -> None:
    folder = run_folder(runs, "größe")
    text = shown(folder, cwd=runs)
    assert shown(folder / "journal.rz", cwd=runs) == text
    first, *_ = text.splitlines()
    assert first == f"größe  {folder.name}  failed"
    for words in ("lr=0.1", "0 to 100, 101 calls of log", "diverged", "train/loss", "0.01 @99"):
        assert words in text
    assert re.search(r"^! größe: 100 of 100 values are NaN", text, re.MULTILINE)
    assert text.endswith(f"\n  tensorboard --logdir {shlex.quote(str(folder))}\n")


def test_several_runs_are_a_table_and_the_newest_in_full(runs: Path) -> None:
    text = shown("runs", cwd=runs)
    table, newest = text.split("\n\n", 1)
    header, *lines = table.splitlines()
    assert header.split() == ["project", "run", "status", "duration", "last", "step", "metrics"]
    assert [line.split("  ")[0] for line in lines] == ["first project", "größe"]
    assert newest.startswith("größe  ")
    assert text.endswith("\n  tensorboard --logdir runs\n")
    assert shown(cwd=runs) == text  # "runs" is where it looks unless told otherwise
    assert shown(runs / "runs", cwd=runs) == text


def test_the_newest_run_is_the_one_that_started_last(runs: Path, tmp_path: Path) -> None:
    for project, name in {"first project": "b", "größe": "a"}.items():
        shutil.copytree(runs / run_folder(runs, project), tmp_path / name)
    table, newest = shown(tmp_path).split("\n\n", 1)
    assert table.splitlines()[1].startswith("first project  ")
    assert newest.startswith("größe  ")


@pytest.mark.parametrize("columns", [80, 100])
@pytest.mark.parametrize("project", ["runs", "first project", "größe"])
def test_no_line_is_longer_than_the_terminal(project: str, columns: int, runs: Path) -> None:
    folder = Path("runs") if project == "runs" else run_folder(runs, project)
    text = shown(folder, cwd=runs, env={"COLUMNS": str(columns)})
    lines = text.splitlines()
    command = next(n for n, line in enumerate(lines) if line == "open in TensorBoard:")
    assert max(map(len, lines[:command])) <= columns
    assert len(lines) == command + 2  # the command stays in one piece, to be copied


def test_colour_is_a_choice_and_its_absence_loses_nothing(runs: Path) -> None:
    plain = shown("runs", cwd=runs)
    assert "\x1b" not in plain
    coloured = shown("runs", cwd=runs, env={"FORCE_COLOR": "1", "TERM": "xterm-256color"})
    assert re.search(COLOUR, coloured)
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    uncoloured = shown("runs", cwd=runs, env={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert not re.search(COLOUR, uncoloured)


def test_a_terminal_that_knows_ascii_alone_gets_ascii(runs: Path) -> None:
    text = shown("runs", cwd=runs, env={"PYTHONIOENCODING": "ascii"})
    assert text.isascii()
    assert "gr??e" in text
    assert len(text) == len(shown("runs", cwd=runs))


def test_a_run_that_was_cut_off_shows_what_it_has(runs: Path, tmp_path: Path) -> None:
    journal = (runs / run_folder(runs, "größe") / "journal.rz").read_bytes()
    (tmp_path / "journal.rz").write_bytes(journal[: len(journal) // 2])
    text = shown(tmp_path)
    assert re.search(r"^größe  .*  (running|crashed)$", text, re.MULTILINE)
    assert re.search(r"^train/loss +0\.0\d+ ", text, re.MULTILINE)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"not a journal at all\n" * 50])
def test_a_journal_that_is_none_is_no_reason_to_fail(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "journal.rz").write_bytes(content)
    assert "no metric was logged" in shown(tmp_path)


def test_what_holds_no_run_is_turned_down_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a journal")
    (tmp_path / "empty").mkdir()
    for path, words in {
        "nowhere": "'nowhere' does not exist",
        "empty": "there is no run at 'empty'",
        "notes.txt": "there is no run at 'notes.txt'",
        "runs": "'runs' does not exist",
    }.items():
        arguments = [] if path == "runs" else [path]
        assert_one_line(rankzero("review", *arguments, cwd=tmp_path), "rankzero review: ", words)
    assert_one_line(rankzero("review", "a", "b", cwd=tmp_path), "'b' is one argument too many")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that can't be read")
def test_a_run_that_cannot_be_read_is_told_in_one_line_and_hides_no_other(
    runs: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "journal.rz").symlink_to("/proc/self/mem")
    (tmp_path / "folder" / "journal.rz").mkdir(parents=True)  # not a journal at all
    alone = rankzero("review", tmp_path)
    assert (alone.returncode, alone.stdout) == (1, "")
    said, closing = alone.stderr.splitlines()
    assert f"the run {str(broken)!r} can't be read: " in said
    assert closing == f"rankzero review: no run at {str(tmp_path)!r} can be read."
    shutil.copytree(runs / run_folder(runs, "first project"), tmp_path / "good")
    run = rankzero("review", tmp_path)
    assert run.returncode == 0
    assert run.stdout.startswith("first project")
    assert run.stderr.splitlines() == [said]


@pytest.mark.parametrize("content", [b"", b"junk", bytes(range(256)) * 12])
def test_a_journal_without_a_record_says_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "journal.rz").write_bytes(content)
    text = shown(tmp_path)
    assert "crashed" in text.splitlines()[0]
    assert "at an unknown time" in text
    assert "it is empty, or damaged" in text
