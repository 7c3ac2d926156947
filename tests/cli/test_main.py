"""The ``rankzero`` command itself: help at once, mistakes in one line, a quiet end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rankzero import __version__
from rankzero.cli.main import COMMANDS
from tests.cli.commands import assert_one_line, environment, rankzero, start

HELP = ["--help", "-h", "help"]
WITHOUT_TORCH = [["--help"], ["--version"], *([command.name, "--help"] for command in COMMANDS)]


@pytest.mark.parametrize("flag", HELP)
def test_help_names_every_command(flag: str) -> None:
    run = rankzero(flag)
    assert (run.returncode, run.stderr) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^  {command.name} +{command.help}$", run.stdout, re.MULTILINE)


def test_the_installed_command_is_the_module() -> None:
    command = Path(sysconfig.get_path("scripts"), "rankzero")
    run = subprocess.run(
        [command, "--version"], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, f"rankzero {__version__}\n", "")
    assert rankzero("--version").stdout == run.stdout


def test_no_command_shows_help_as_a_mistake() -> None:
    run = rankzero()
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == rankzero("--help").stdout


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("lanuch", ["'lanuch' is not a command", "Did you mean launch?", "launch, review, env"]),
        ("ENV", ["Did you mean env?", "env, launch, review"]),
        ("train.py", ["'train.py' is not a command", "launch, review, env"]),
        ("--versoin", ["'--versoin' is not a flag", "Did you mean --version?"]),
    ],
)
def test_what_is_no_command_is_answered_with_the_nearest(word: str, answer: list[str]) -> None:
    assert_one_line(rankzero(word), *answer)


@pytest.mark.parametrize("command", [command.name for command in COMMANDS])
def test_a_command_names_the_nearest_of_its_flags(command: str) -> None:
    nearest = f"{command}: --hepl is not a flag of rankzero {command}. Did you mean --help?"
    assert_one_line(rankzero(command, "--hepl"), nearest)


@pytest.mark.parametrize("arguments", WITHOUT_TORCH, ids=" ".join)
def test_help_comes_without_torch(arguments: list[str]) -> None:
    run = rankzero(*arguments, env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert run.returncode == 0
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", run.stderr, re.MULTILINE))
    assert "rankzero.cli.main" in imported
    assert not {name for name in imported if name.partition(".")[0] in ("torch", "numpy", "rich")}


@pytest.mark.parametrize("arguments", [*WITHOUT_TORCH, ["env"]], ids=" ".join)
def test_a_reader_that_went_away_ends_it_quietly(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        run = rankzero(*arguments, stdout=writer)
    finally:
        os.close(writer)
    assert (run.returncode, run.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(os.name != "posix", reason="streams are closed by a POSIX shell")
@pytest.mark.parametrize(("word", "code"), [("--help", 0), ("lanuch", 2)])
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_it_does_without_output_streams(word: str, code: int, closed: str) -> None:
    run = subprocess.run(
        ["/bin/sh", "-c", f'"$0" -m rankzero {word} {closed}', sys.executable],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == code
    assert "Traceback" not in run.stderr
    if "2>" in closed:
        assert "lanuch" not in run.stdout  # an error is not output


@pytest.mark.skipif(os.name != "posix", reason="stops at a named pipe")
def test_ctrl_c_is_answered_in_one_line(tmp_path: Path) -> None:
    # The command is held where it reads a package on its way: one that blocks on a named pipe.
    reached, blocking = tmp_path / "reached", tmp_path / "psutil.py"
    os.mkfifo(reached)
    blocking.write_text(f"open({str(reached)!r}, 'w').close()\nimport signal\nsignal.pause()\n")
    with start("env", cwd=tmp_path) as process:
        reached.read_text()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "rankzero: interrupted.\n")
