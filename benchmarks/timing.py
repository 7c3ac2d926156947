"""Running a snippet in a process of its own, and printing rows of figures."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec

# Packages are installed with their bytecode; a checkout has to be allowed to keep its own.
ENVIRONMENT = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}


def has(package: str) -> bool:
    """Tell whether a package to compare with is installed."""
    return find_spec(package) is not None


def run_code(code: str) -> str:
    """Run Python code in a new process; return what it prints."""
    command = [sys.executable, "-c", code]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=ENVIRONMENT
    )
    if run.returncode:
        raise RuntimeError(f"benchmark process failed:\n{run.stderr}")
    return run.stdout


def best_wall(command: Sequence[str], repeats: int = 5) -> float:
    """Return the shortest wall time of a command, in seconds."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, timeout=600, env=ENVIRONMENT)
        times.append(time.perf_counter() - began)
    return min(times)


def heading(text: str) -> None:
    """Print the title of a group of rows."""
    print(f"\n{text}\n{'-' * len(text)}", flush=True)


def row(name: str, *cells: str) -> None:
    """Print one row."""
    print(f"{name:<44}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
