"""What logging three scalars costs the loop, with TensorBoard on.

The loop does a little work between two calls, as a training loop does; only the call is timed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from statistics import median

import torch

from benchmarks.timing import has, heading, row

CALLS = 5000


def measure(log: Callable[[int], None]) -> list[float]:
    """Return the time of each call in microseconds, sorted."""
    work = torch.randn(64, 64)
    times = []
    for step in range(CALLS):
        work = torch.tanh(work @ work)
        began = time.perf_counter()
        log(step)
        times.append((time.perf_counter() - began) * 1e6)
    return sorted(times)


def show(name: str, times: list[float]) -> None:
    """Print a row of quantiles."""
    p99 = times[int(len(times) * 0.99)]
    row(name, f"{median(times):.1f}", f"{p99:.1f}", f"{times[-1]:.0f}")


def with_accelerator(accelerator_class: type, folder: str) -> list[float]:
    """Measure ``accelerator.log``."""
    accelerator = accelerator_class(cpu=True, log_with="tensorboard", project_dir=folder)
    accelerator.init_trackers("run", config={"lr": 0.1})
    times = measure(
        lambda step: accelerator.log({"loss": 0.1 * step, "lr": 1e-3, "accuracy": 0.5}, step=step)
    )
    accelerator.end_training()
    return times


def with_summary_writer(folder: str) -> list[float]:
    """Measure three calls of ``SummaryWriter.add_scalar``."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(folder)

    def log(step: int) -> None:
        writer.add_scalar("loss", 0.1 * step, step)
        writer.add_scalar("lr", 1e-3, step)
        writer.add_scalar("accuracy", 0.5, step)

    times = measure(log)
    writer.close()
    return times


def main() -> None:
    """Print the table."""
    import rankzero

    torch.set_num_threads(1)
    heading(f"Three scalars with TensorBoard: us a call over {CALLS} calls")
    row("", "median", "p99", "max")
    with tempfile.TemporaryDirectory() as folder:
        show("rankzero, Accelerator.log", with_accelerator(rankzero.Accelerator, folder))
        show("SummaryWriter.add_scalar, three calls", with_summary_writer(folder + "/plain"))
        if has("accelerate"):
            import accelerate

            show("Accelerate, Accelerator.log", with_accelerator(accelerate.Accelerator, folder))


if __name__ == "__main__":
    main()
