"""The loop of a typical tutorial for Hugging Face Accelerate, with its import renamed.

python examples/tutorial.py
rankzero launch --cpu --num_processes 2 examples/tutorial.py
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rankzero import Accelerator


def main(path: str) -> None:
    """Fit a line, and save the weights to ``path``."""
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    torch.manual_seed(0)
    x = torch.randn(256, 4)
    y = x @ torch.tensor([[1.0], [-2.0], [3.0], [0.5]])
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10 * len(loader))
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in range(10):
        model.train()
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}")
    accelerator.wait_for_everyone()
    accelerator.save(accelerator.unwrap_model(model).state_dict(), path)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tutorial.pt")
