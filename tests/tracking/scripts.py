"""Scripts that track, run as processes of their own without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rankzero.tracking.reader import RunRecord, find_runs, read_run

ROOT = Path(__file__).parents[2]

START = """
import os, signal, sys, threading, time
from rankzero import tracking
from rankzero.tracking import registry
from tests.tracking.trackers import ROWS, Gated, Memory
registry.ADAPTERS.update(ROWS)
"""
RUN = START + 'run = tracking.init("p", log_with="memory", logging_dir="runs")\n'


def start_script(
    code: str, folder: Path, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start ``code`` in ``folder``; its output can be read line by line."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_script(
    code: str, folder: Path, env: dict[str, str] | None = None, timeout: float = 60.0
) -> tuple[int, str, str]:
    """Run ``code`` in ``folder``; return its exit code and what it wrote to stdout and stderr."""
    with start_script(code, folder, env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
        return process.returncode, out, err


def the_run(folder: Path) -> RunRecord:
    """Return the one run under ``folder``."""
    (found,) = find_runs(folder)
    return read_run(found)
