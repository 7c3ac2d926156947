"""Train a small convolutional classifier on scikit-learn's digits, on any number of processes.

    python examples/digits.py
    rankzero launch --cpu --num_processes 2 examples/digits.py

The effective batch is the same however many processes share it, and so is the accuracy.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from rich.progress import Progress
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rankzero import Accelerator
from rankzero.config.plugins import DataLoaderConfiguration
from rankzero.utils import set_seed


def make_datasets() -> tuple[TensorDataset, TensorDataset]:
    """Return training and held-out digits: images (1, 8, 8) float32 in 0..1, labels int64."""
    images, labels = load_digits(return_X_y=True)
    split = train_test_split(images, labels, test_size=0.2, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = (torch.as_tensor(part) for part in split)

    def dataset(x: torch.Tensor, y: torch.Tensor) -> TensorDataset:
        return TensorDataset((x.float() / 16).reshape(-1, 1, 8, 8), y.long())

    return dataset(train_x, train_y), dataset(test_x, test_y)


def make_model() -> nn.Module:
    """Return the classifier: (batch, 1, 8, 8) float32 to (batch, 10) logits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def parse_arguments() -> argparse.Namespace:
    """Return the command line's settings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch_size", type=int, default=24, help="over all processes")
    parser.add_argument("--accumulate", type=int, default=2, help="batches an optimizer step")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log_with", default="tensorboard")
    parser.add_argument("--project_dir", type=Path, default=Path("runs"))
    return parser.parse_args()


@torch.no_grad()
def evaluate(accelerator: Accelerator, model: nn.Module, loader: DataLoader) -> float:
    """Return the share of held-out digits that are told right, over all processes."""
    model.eval()
    right = total = 0
    for images, labels in loader:
        told, truth = accelerator.gather_for_metrics((model(images).argmax(dim=1), labels))
        right += int((told == truth).sum())
        total += len(truth)
    model.train()
    return right / total


def train(arguments: argparse.Namespace) -> float:
    """Train, log and save; return the final accuracy."""
    set_seed(arguments.seed)
    accelerator = Accelerator(
        gradient_accumulation_steps=arguments.accumulate,
        # A batch is cut into one part a process: the loop below is the same whatever their number.
        dataloader_config=DataLoaderConfiguration(split_batches=True),
        log_with=arguments.log_with,
        project_dir=arguments.project_dir,
    )
    train_set, test_set = make_datasets()
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=arguments.lr)
    train_loader = DataLoader(
        train_set, batch_size=arguments.batch_size, shuffle=True, drop_last=True
    )
    test_loader = DataLoader(test_set, batch_size=10 * arguments.batch_size)
    steps_an_epoch = -(-len(train_loader) // arguments.accumulate)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=arguments.lr, total_steps=arguments.epochs * steps_an_epoch
    )
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    accelerator.init_trackers("digits", config=vars(arguments))
    step, accuracy = 0, 0.0
    with Progress(disable=not accelerator.is_main_process) as progress:
        task = progress.add_task("training", total=arguments.epochs * steps_an_epoch)
        for epoch in range(arguments.epochs):
            began, samples = time.perf_counter(), 0
            for images, labels in train_loader:
                with accelerator.accumulate(model):
                    loss = nn.functional.cross_entropy(model(images), labels)
                    accelerator.backward(loss)
                    optimizer.step()
                    scheduler.step()
                    optimizer.zero_grad()
                samples += len(labels) * accelerator.num_processes
                if accelerator.sync_gradients:
                    step += 1
                    progress.advance(task)
                    values = {"train/loss": loss.item(), "train/lr": scheduler.get_last_lr()[0]}
                    accelerator.log(values, step=step)
            speed = samples / (time.perf_counter() - began)
            accuracy = evaluate(accelerator, model, test_loader)
            values = {"eval/accuracy": accuracy, "train/samples_per_second": speed, "epoch": epoch}
            accelerator.log(values, step=step)
            progress.update(task, description=f"epoch {epoch + 1}, accuracy {accuracy:.4f}")

    accelerator.wait_for_everyone()
    weights = accelerator.unwrap_model(model).state_dict()
    accelerator.save(weights, arguments.project_dir / "digits.pt")
    accelerator.end_training()
    accelerator.print(f"accuracy on held-out digits: {accuracy:.4f}")
    return accuracy


if __name__ == "__main__":
    train(parse_arguments())
