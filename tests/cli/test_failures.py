"""When a rank fails or the launch is to stop: an end in good time, the cause last, nobody left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rankzero.cli.elastic import early_end_note
from rankzero.cli.worker import END_FILE, GRACE_SECONDS
from rankzero.tracking.reader import find_runs, read_run
from tests.cli.commands import SCRIPTS, rankzero, start, status

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and sessions are POSIX's")

TWO_RANKS = ["--cpu", "--num_processes", "2"]

# How rank 1 ends, the launch's status, how the failure is put, and what stands last.
ENDINGS = {
    "barrier": (1, "exit code 1", "ValueError: rank 1 will not come"),
    "exit 3": (3, "exit code 3", "SystemExit: 3"),
    "exit text": (1, "exit code 1", "SystemExit: out of data"),
    "SIGKILL": (
        137,
        "killed by SIGKILL (signal 9), often the out-of-memory killer",
        "  ended because of it: rank 0",
    ),
    "SIGSEGV": (
        139,
        "killed by SIGSEGV (signal 11), a crash inside native code",
        r'  File ".*ending\.py", line \d+ in <module>',
    ),
    "interrupt": (130, "exit code 130", "KeyboardInterrupt"),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_the_rank_that_failed_is_told_last_and_gives_the_status(how: str) -> None:
    code, put, last = ENDINGS[how]
    run = rankzero("launch", *TWO_RANKS, SCRIPTS / "ending.py", how, 1, timeout=60)
    assert (run.returncode, run.stdout) == (code, "")
    lines = run.stderr.splitlines()
    assert re.fullmatch(last, lines[-1]), run.stderr
    headline = next(n for n, line in enumerate(lines) if line.startswith("rankzero launch: "))
    assert re.fullmatch(
        rf"rankzero launch: rank 1 of 2 failed first: {re.escape(put)} \(pid \d+ on .+\)\.",
        lines[headline],
    )
    assert lines[headline + 1] in (
        "  ended because of it: rank 0",
        "  rank 0 lost contact and failed after it",
    )
    # Before the closing block rank 1 has one line, and the others and the agent none.
    early = [line for line in lines[:headline] if line]
    assert len(early) <= 1, run.stderr
    # No frame of the launcher's stands between the user and the error.
    assert "worker.py" not in run.stderr
    assert "runpy" not in run.stderr


def test_a_rank_that_left_the_others_waiting_is_named() -> None:
    run = rankzero("launch", *TWO_RANKS, SCRIPTS / "ending.py", "leave early", 1, timeout=60)
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    headline = next(n for n, line in enumerate(lines) if line.startswith("rankzero launch: "))
    assert lines[headline].startswith("rankzero launch: rank 0 of 2 failed first: exit code 1 (")
    assert lines[headline + 1].startswith(
        "  had ended before it, without an error: rank 1; a rank that"
    )


def test_ranks_that_ended_long_before_the_others_are_told_of_once_they_may_be_waited_for(
    tmp_path: Path,
) -> None:
    files = {rank: str(tmp_path / str(rank) / "error.json") for rank in range(3)}
    for rank in files:
        (tmp_path / str(rank)).mkdir()
    assert early_end_note(files, 1000.0) is None
    (tmp_path / "1" / END_FILE).write_text("960.0")
    (tmp_path / "2" / END_FILE).write_text("980.0")
    note = early_end_note(files, 1000.0)
    assert note is not None
    assert note.startswith(
        "rankzero launch: rank 1 of 3 ended 30 s ago without an error, and others"
    )
    assert early_end_note(files, 985.0) is None
    (tmp_path / "0" / END_FILE).write_text("999.0")
    assert early_end_note(files, 1000.0) is None


def test_the_run_of_a_rank_that_raises_a_bare_systemexit_is_failed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from rankzero import tracking\n"
        "tracking.init('p', logging_dir='runs').log({'a': 1.0}, step=0)\n"
        "raise SystemExit(3)\n"
    )
    run = rankzero("launch", *TWO_RANKS, script, cwd=tmp_path, timeout=60)
    assert run.returncode == 3
    (folder,) = find_runs(tmp_path / "runs")
    assert read_run(folder).status == "failed"


def test_a_traceback_is_pythons_own() -> None:
    texts = {}
    for kind, flags in {"alone": ["--cpu"], "two": TWO_RANKS}.items():
        run = rankzero("launch", *flags, SCRIPTS / "ending.py", "cause", 0)
        assert run.returncode == 1
        texts[kind] = run.stderr[run.stderr.index("Traceback") :]
    assert texts["alone"].count("Traceback") == 2
    assert texts["two"] == texts["alone"]


def test_a_script_that_is_not_python_is_shown_as_python_does(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("loss = = 1\n")
    run = rankzero("launch", *TWO_RANKS, "train.py", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (1, "")
    place, line, mark, error = run.stderr.splitlines()[-4:]
    assert place == f'  File "{tmp_path / "train.py"}", line 1'
    assert (line, mark) == ("    loss = = 1", "           ^")
    assert error == "SyntaxError: invalid syntax"
    assert "worker.py" not in run.stderr


def test_a_part_that_a_package_lacks_is_named() -> None:
    run = rankzero("launch", *TWO_RANKS, "-m", "json.nowhere")
    assert run.returncode == 1
    assert run.stderr.endswith("No module named json.nowhere\n")
    assert "runpy" not in run.stderr


@pytest.mark.parametrize(
    ("how", "code"), [("raise", 1), ("exit 3", 3), ("SIGKILL", 137), ("SIGTERM", 143)]
)
def test_one_process_ends_as_under_plain_python(how: str, code: int) -> None:
    run = rankzero("launch", "--cpu", SCRIPTS / "ending.py", how, 0)
    assert (status(run), run.stdout) == (code, "")
    assert ("ValueError: invalid literal" in run.stderr) == (how == "raise")
    assert "rankzero launch" not in run.stderr


def test_the_first_exception_is_told_first_whoever_ended_first(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    run = rankzero("launch", *TWO_RANKS, SCRIPTS / "both.py", tmp_path / "pipe")
    assert run.returncode == 1
    lines = run.stderr.splitlines()
    headline = next(n for n, line in enumerate(lines) if line.startswith("rankzero launch: "))
    assert lines[headline].startswith("rankzero launch: rank 1 of 2 failed first: exit code 1 (")
    assert lines[headline + 1] == "  rank 0 failed after it: ValueError: the consequence"
    assert lines[-1] == "ValueError: the cause"


@pytest.mark.slow
def test_a_failed_rank_that_does_not_end_by_itself_is_ended() -> None:
    run = rankzero(
        "launch", *TWO_RANKS, SCRIPTS / "ending.py", "thread", 1, timeout=GRACE_SECONDS + 30
    )
    assert run.returncode == 1
    assert run.stderr.endswith("ValueError: left a thread behind\n")


@contextlib.contextmanager
def waiting_launch(
    num_processes: int, *arguments: str
) -> Iterator[tuple[Any, list[psutil.Process]]]:
    """Start a launch that waits for ever; give it and every process of its ranks; end them all."""
    flags = ["--cpu", "--num_processes", num_processes]
    family: list[psutil.Process] = []
    with start("launch", *flags, SCRIPTS / "waiting.py", *arguments) as launcher:
        try:
            for _ in range(num_processes):
                family += map(psutil.Process, map(int, launcher.stdout.readline().split()))
            assert len(family) == 2 * num_processes
            yield launcher, family
        finally:
            for process in [launcher, *family]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def still_there(family: list[psutil.Process]) -> list[psutil.Process]:
    """Return the processes that haven't ended a few seconds from now."""
    _, left = psutil.wait_procs(family, timeout=5)
    return [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130), ("SIGHUP", 129)])
def test_a_signal_to_the_launcher_leaves_no_process_behind(name: str, code: int) -> None:
    with waiting_launch(2) as (launcher, family):
        launcher.send_signal(signal.Signals[name])
        # The pipe has an end only when the last process that writes to it is gone.
        out, err = launcher.communicate(timeout=30)
        assert (launcher.returncode, out) == (code, "")
        assert err == f"\nrankzero launch: stopped by {name}; all ranks have ended.\n"
        assert still_there(family) == []


def test_a_second_signal_ends_at_once_what_ignores_the_first() -> None:
    with waiting_launch(2, "stubborn") as (launcher, family):
        began = time.monotonic()
        launcher.send_signal(signal.SIGINT)
        assert launcher.stdout.readline() == "asked\n"
        launcher.send_signal(signal.SIGINT)
        _, err = launcher.communicate(timeout=30)
        assert launcher.returncode == 130
        assert err == "\nrankzero launch: stopped by SIGINT; all ranks have ended.\n"
        assert time.monotonic() - began < GRACE_SECONDS
        assert still_there(family) == []


def test_one_process_takes_a_signal_itself() -> None:
    with waiting_launch(1) as (launcher, family):
        assert launcher.pid == family[0].pid
        launcher.send_signal(signal.SIGTERM)
        launcher.wait(timeout=30)
        assert status(launcher) == 143


def test_ranks_end_when_their_launcher_is_killed() -> None:
    with waiting_launch(2) as (launcher, family):
        launcher.kill()
        launcher.wait(timeout=30)
        assert still_there(family[::2]) == []  # the ranks; a rank's children see to themselves
