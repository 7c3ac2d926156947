"""The same small training job as a plain PyTorch loop, and as a prepared one."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SAMPLES, FEATURES = 48, 6


def make_dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(SAMPLES, FEATURES, generator=generator)
    y = x.sum(dim=1, keepdim=True) + 0.1 * torch.randn(SAMPLES, 1, generator=generator)
    return TensorDataset(x, y)


def make_model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(FEATURES, 5), nn.Tanh(), nn.Linear(5, 1))


def flat(model: nn.Module) -> torch.Tensor:
    """Return all weights as one vector, shape (number of weights,)."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def plain_loop(batch_size: int, accumulate: int, scheduler_moves: int = 1) -> Any:
    """Train 2 epochs without rankzero; return (weights, learning rates after each step)."""
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    torch.manual_seed(11)
    loader = DataLoader(make_dataset(), batch_size=batch_size, shuffle=True)
    rates = []
    for _ in range(2):
        for index, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y) / accumulate
            loss.backward()
            if (index + 1) % accumulate == 0 or index + 1 == len(loader):
                optimizer.step()
                for _ in range(scheduler_moves):
                    scheduler.step()
                optimizer.zero_grad()
                rates.append(scheduler.get_last_lr()[0])
    return flat(model), rates


def prepared_loop(
    batch_size: int,
    accumulate: int,
    epochs: int = 2,
    shuffle: bool = True,
    split_batches: bool = True,
    **settings: Any,
) -> Any:
    """Train through rankzero; ``batch_size`` is the loader's. Returns (weights, learning rates)."""
    from rankzero import Accelerator
    from rankzero.config.plugins import DataLoaderConfiguration

    accelerator = Accelerator(
        gradient_accumulation_steps=accumulate,
        dataloader_config=DataLoaderConfiguration(split_batches=split_batches),
        **settings,
    )
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
    torch.manual_seed(11)
    loader = DataLoader(make_dataset(), batch_size=batch_size, shuffle=shuffle)
    scheduler, loader, model, optimizer = accelerator.prepare(scheduler, loader, model, optimizer)
    rates = []
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                rates.append(scheduler.get_last_lr()[0])
    return flat(accelerator.unwrap_model(model)), rates
