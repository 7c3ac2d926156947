"""Run ``rankzero`` as its users do: in a process of its own, with a bound on how long it takes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.conftest import NAMES, PREFIXES

SCRIPTS = Path(__file__).parent / "scripts"
# What a developer may have set and these tests are about, or would be slow with.
OWN = {
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONIOENCODING",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "OMP_NUM_THREADS",
}


def environment(**variables: str) -> dict[str, str]:
    """Return this process's variables without any launcher's and tracker's, and with those given."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in NAMES | OWN and not name.startswith(PREFIXES)
    }
    return {**kept, **variables}


def start(*arguments: object, env: dict[str, str] | None = None, **options: Any) -> Any:
    """Start ``rankzero`` with ``arguments``, its output in pipes; the caller ends it."""
    for stream in ("stdout", "stderr"):
        options.setdefault(stream, subprocess.PIPE)
    return subprocess.Popen(
        [sys.executable, "-m", "rankzero", *map(str, arguments)],
        env=environment(**env or {}),
        encoding="utf-8",
        **options,
    )


def rankzero(*arguments: object, timeout: float = 60, **options: Any) -> Any:
    """Run ``rankzero`` to its end; return what ``subprocess.run`` would."""
    with start(*arguments, **options) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def status(process: Any) -> int:
    """Return the exit status as a shell shows it: 128 + n where signal n ended the process."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def assert_one_line(process: Any, *words: str) -> None:
    """Assert that the command line was turned down in one line with ``words``, in their order."""
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith("rankzero")
    assert process.stderr.count("\n") == 1, process.stderr
    found = [process.stderr.find(word) for word in words]
    assert -1 not in found, (words, process.stderr)
    assert found == sorted(found), (words, process.stderr)
