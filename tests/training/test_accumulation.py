"""Accumulation: when gradients are exchanged, when optimizer and scheduler move."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rankzero import Accelerator
from rankzero.config.plugins import GradientAccumulationPlugin
from tests.ranks import run_ranks


class Recorder(torch.optim.SGD):
    """An optimizer that counts its steps."""

    steps = 0

    def step(self, closure=None):
        self.steps += 1
        return super().step(closure)


def _count(batches: int, plugin: GradientAccumulationPlugin, name_model: bool = True) -> dict:
    accelerator = Accelerator(gradient_accumulation_plugin=plugin)
    model = nn.Linear(2, 1)
    inner = Recorder(model.parameters(), lr=0.1)
    moves: list[int] = []
    scheduler = torch.optim.lr_scheduler.LambdaLR(inner, lambda n: moves.append(n) or 1.0)
    samples = 2 * batches * accelerator.num_processes
    loader = DataLoader(TensorDataset(torch.ones(samples, 2)), batch_size=2)
    model, optimizer, loader, scheduler = accelerator.prepare(model, inner, loader, scheduler)
    exchanges = 0

    def count_exchange(_, bucket):
        nonlocal exchanges
        exchanges += 1
        return (
            torch.distributed.all_reduce(bucket.buffer(), async_op=True)
            .get_future()
            .then(lambda future: future.value()[0] / accelerator.num_processes)
        )

    if accelerator.num_processes > 1:
        model.register_comm_hook(None, count_exchange)
    moves.clear()
    flags = []
    for (x,) in loader:
        with accelerator.accumulate(*([model] if name_model else [])):
            accelerator.backward(model(x).mean())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        flags.append(accelerator.sync_gradients)
    return {"steps": inner.steps, "moves": len(moves), "exchanges": exchanges, "flags": flags}


def test_one_exchange_an_optimizer_step_on_two_ranks() -> None:
    for counted in run_ranks(_count, 2, 10, GradientAccumulationPlugin(num_steps=4)):
        assert counted["exchanges"] == counted["steps"] == 3
        assert counted["flags"] == [False] * 3 + [True] + [False] * 3 + [True] + [False, True]
        assert counted["moves"] == 2 * 3


def test_accumulate_without_naming_a_model_holds_back_every_prepared_one() -> None:
    for counted in run_ranks(_count, 2, 4, GradientAccumulationPlugin(num_steps=4), False):
        assert counted["exchanges"] == counted["steps"] == 1


def test_sync_each_batch_exchanges_always_and_steps_as_often_as_before() -> None:
    plugin = GradientAccumulationPlugin(num_steps=2, sync_each_batch=True)
    for counted in run_ranks(_count, 2, 6, plugin):
        assert counted["exchanges"] == 6
        assert counted["steps"] == 3


def test_the_last_batch_of_a_loader_ends_the_window_unless_told_otherwise() -> None:
    assert _count(5, GradientAccumulationPlugin(num_steps=2))["steps"] == 3


def test_without_sync_with_dataloader_a_window_goes_on_into_the_next_epoch() -> None:
    plugin = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=False)
    assert _count(5, plugin)["steps"] == 2


def test_a_scheduler_moves_once_an_optimizer_step() -> None:
    assert _count(8, GradientAccumulationPlugin(num_steps=2))["moves"] == 4


def test_step_and_zero_grad_do_nothing_on_an_accumulating_step() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = nn.Linear(1, 1, bias=False)
    before = model.weight.item()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.ones(1, 1)).sum())
        optimizer.step()
        optimizer.zero_grad()
    assert model.weight.item() == before
    assert model.weight.grad.item() == 0.5
    with accelerator.accumulate(model):
        accelerator.backward(model(torch.ones(1, 1)).sum())
        optimizer.step()
        optimizer.zero_grad()
    assert model.weight.item() == pytest.approx(before - 1.0)
    assert model.weight.grad is None


def test_clipping_waits_for_the_whole_gradient() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = nn.Linear(1, 1, bias=False)
    model = accelerator.prepare(model)
    norms, grads = [], []
    for _ in range(2):
        with accelerator.accumulate(model):
            accelerator.backward(4 * model(torch.ones(1, 1)).sum())
            norms.append(accelerator.clip_grad_norm_(model.parameters(), 1.0))
            grads.append(model.weight.grad.item())
    # Half of the mean's gradient is there after the first of two batches, and is left as it is.
    assert norms[0].item() == pytest.approx(2.0)
    assert grads[0] == pytest.approx(2.0)
    assert norms[1].item() == pytest.approx(4.0)
    assert model.weight.grad.item() == pytest.approx(1.0)
    accelerator.clip_grad_value_(model.parameters(), 0.25)
    assert model.weight.grad.item() == pytest.approx(0.25)


@pytest.mark.parametrize("steps", [0, -1, 1.5, "2", True])
def test_a_number_of_steps_that_is_none_is_turned_down(steps: object) -> None:
    with pytest.raises(ValueError, match=r"gradient_accumulation_steps=.*whole number"):
        Accelerator(gradient_accumulation_steps=steps)


def test_the_launcher_sets_the_number_of_steps_that_the_script_leaves_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "3")
    assert Accelerator().gradient_accumulation_steps == 3
    monkeypatch.setenv("RANKZERO_GRADIENT_ACCUMULATION_STEPS", "5")
    assert Accelerator().gradient_accumulation_steps == 5
    assert Accelerator(gradient_accumulation_steps=2).gradient_accumulation_steps == 2
    monkeypatch.setenv("RANKZERO_GRADIENT_ACCUMULATION_STEPS", "many")
    with pytest.raises(ValueError, match="RANKZERO_GRADIENT_ACCUMULATION_STEPS='many'"):
        Accelerator()


def test_two_numbers_that_differ_are_turned_down() -> None:
    plugin = GradientAccumulationPlugin(num_steps=4)
    with pytest.raises(ValueError, match="differ"):
        Accelerator(gradient_accumulation_steps=2, gradient_accumulation_plugin=plugin)
