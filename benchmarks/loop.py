"""What the prepared loop costs a step over the same plain PyTorch loop.

A Linear(8, 1), batch 4, SGD, one process: so little work that the plumbing shows. The candidates
take turns in one process, so that the machine's moods meet all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.timing import has, heading, row

STEPS, ROUNDS = 400, 15


def parts() -> tuple:
    """Return a model, its optimizer, and a loader of STEPS batches."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    dataset = TensorDataset(torch.randn(4 * STEPS, 8), torch.randn(4 * STEPS, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(dataset, batch_size=4)


def plain() -> Callable[[], None]:
    """Return one epoch of the plain loop."""
    model, optimizer, loader = parts()

    def epoch() -> None:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def prepared(accelerator_class: type) -> Callable[[], None]:
    """Return one epoch of the same loop through an Accelerator."""
    accelerator = accelerator_class(cpu=True)
    model, optimizer, loader = accelerator.prepare(*parts())

    def epoch() -> None:
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()

    return epoch


def fabric() -> Callable[[], None]:
    """Return one epoch of the same loop through Lightning Fabric."""
    from lightning_fabric import Fabric

    runner = Fabric(accelerator="cpu", devices=1)
    model, optimizer, loader = parts()
    model, optimizer = runner.setup(model, optimizer)
    loader = runner.setup_dataloaders(loader)

    def epoch() -> None:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            runner.backward(loss)
            optimizer.step()
            optimizer.zero_grad()

    return epoch


def main() -> None:
    """Print the table."""
    import rankzero

    torch.set_num_threads(1)
    candidates = {"plain PyTorch": plain(), "rankzero": prepared(rankzero.Accelerator)}
    if has("accelerate"):
        import accelerate

        candidates["Accelerate"] = prepared(accelerate.Accelerator)
    if has("lightning_fabric"):
        candidates["Lightning Fabric"] = fabric()
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(ROUNDS):
        for name, epoch in candidates.items():
            began = time.perf_counter()
            epoch()
            times[name].append((time.perf_counter() - began) / STEPS * 1e6)
    heading(f"The loop: us a step, median of {ROUNDS} epochs of {STEPS} steps, one process")
    base = times["plain PyTorch"]
    for name, values in times.items():
        added = median(value - plain for value, plain in zip(values, base, strict=True))
        row(name, f"{median(values):.1f}", f"+{added:.1f}" if name != "plain PyTorch" else "")


if __name__ == "__main__":
    main()
