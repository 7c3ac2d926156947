"""What importing rankzero and asking for help costs."""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.timing import best_wall, has, heading, row, run_code

IMPORT = (
    "import time; import torch; began = time.perf_counter(); {statement}; "
    "print((time.perf_counter() - began) * 1e3)"
)


def import_cost(statement: str, repeats: int = 7) -> float:
    """Return the median cost of a statement after ``import torch``, in milliseconds."""
    return median(float(run_code(IMPORT.format(statement=statement))) for _ in range(repeats))


def main() -> None:
    """Print the table."""
    heading("Starting")
    rows = ["import rankzero", "from rankzero import Accelerator"]
    if has("accelerate"):
        rows.append("from accelerate import Accelerator")
    if has("lightning_fabric"):
        rows.append("from lightning_fabric import Fabric")
    for statement in rows:
        row(f"{statement} (after torch)", f"{import_cost(statement):.1f} ms")
    for module in ["rankzero"] + (
        ["accelerate.commands.accelerate_cli"] if has("accelerate") else []
    ):
        seconds = best_wall([sys.executable, "-m", module, "--help"])
        row(f"python -m {module.split('.')[0]} --help", f"{seconds * 1e3:.0f} ms")
    seconds = best_wall([sys.executable, "-c", "pass"])
    row("python -c pass", f"{seconds * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
