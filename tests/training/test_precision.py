"""Precision: bf16 and fp16 regions, fp32 outputs, and the loss scale."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections import namedtuple

import pytest
import torch
from torch import nn

from rankzero import Accelerator, AutocastKwargs, GradScalerKwargs
from rankzero.state import AcceleratorState

Output = namedtuple("Output", ["logits", "index"])  # noqa: PYI024


class Model(nn.Module):
    """Returns the type that it computed in, an integer, and nested floats."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, extra: int = 0) -> dict:
        hidden = self.linear(x)
        self.computed_in = hidden.dtype
        return {"out": Output(hidden, torch.tensor([extra])), "list": [hidden, "text", None]}


@pytest.mark.parametrize(("name", "dtype"), [("bf16", torch.bfloat16), ("fp16", torch.float16)])
def test_a_prepared_model_computes_in_the_precision_and_returns_fp32(
    name: str, dtype: torch.dtype
) -> None:
    model = Accelerator(mixed_precision=name).prepare(Model())
    result = model(torch.ones(1, 2), extra=5)
    assert model.computed_in == dtype
    assert result["out"].logits.dtype == result["list"][0].dtype == torch.float32
    assert isinstance(result["out"], Output)
    assert result["out"].index.dtype == torch.int64
    assert result["list"][1:] == ["text", None]


def test_copies_and_pickles_of_a_prepared_model_use_their_own_weights() -> None:
    model = Accelerator(mixed_precision="bf16").prepare(Model())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            other.linear.weight.zero_()
            other.linear.bias.zero_()
        assert other(torch.ones(1, 2))["out"].logits.abs().sum() == 0
    assert model(torch.ones(1, 2))["out"].logits.abs().sum() != 0


def test_a_prepared_model_keeps_the_signature_of_its_forward() -> None:
    model = Accelerator(mixed_precision="bf16").prepare(Model())
    assert list(inspect.signature(model.forward).parameters) == ["x", "extra"]


def test_unwrap_model_can_take_the_precision_off() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    model = accelerator.prepare(Model())
    assert accelerator.unwrap_model(model)(torch.ones(1, 2))["list"][0].dtype == torch.float32
    assert model.computed_in == torch.bfloat16
    bare = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    bare(torch.ones(1, 2))
    assert bare.computed_in == torch.float32


def test_without_mixed_precision_a_model_is_returned_as_it_is() -> None:
    model = Model()
    accelerator = Accelerator()
    assert accelerator.prepare(model) is model
    assert "forward" not in model.__dict__
    assert accelerator.mixed_precision == "no"


def test_autocast_computes_in_the_precision_in_force_and_can_be_switched_off() -> None:
    accelerator = Accelerator(mixed_precision="bf16")
    x = torch.ones(2, 2)
    with accelerator.autocast():
        assert (x @ x).dtype == torch.bfloat16
        with accelerator.autocast(AutocastKwargs(enabled=False)):
            assert (x @ x).dtype == torch.float32


def fp16_training(**scaler: object) -> tuple:
    accelerator = Accelerator(
        mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=8.0, **scaler)]
    )
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    return accelerator, *accelerator.prepare(model, optimizer, scheduler)


def test_an_infinite_gradient_skips_the_step_and_the_schedule_and_lowers_the_scale() -> None:
    accelerator, model, optimizer, scheduler = fp16_training()
    before = model.weight.item()
    accelerator.backward(model(torch.ones(1, 1)).sum() * float("inf"))
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    assert accelerator.optimizer_step_was_skipped
    assert optimizer.step_was_skipped
    assert model.weight.item() == before
    assert scheduler.get_last_lr() == [1.0]
    assert accelerator.scaler.get_scale() == 4.0

    accelerator.backward(model(torch.ones(1, 1)).sum())
    optimizer.step()
    scheduler.step()
    assert not accelerator.optimizer_step_was_skipped
    assert model.weight.item() == pytest.approx(before - 1.0)
    assert scheduler.get_last_lr() == [0.5]


def test_the_norm_on_an_accumulating_step_is_told_without_the_scale() -> None:
    accelerator = Accelerator(
        mixed_precision="fp16",
        gradient_accumulation_steps=2,
        kwargs_handlers=[GradScalerKwargs(init_scale=8.0)],
    )
    model = nn.Linear(1, 1, bias=False)
    model, _ = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    with accelerator.accumulate(model):
        accelerator.backward(4 * model(torch.ones(1, 1)).sum())
        assert accelerator.clip_grad_norm_(model.weight, 1.0).item() == pytest.approx(2.0)
    assert model.weight.grad.item() == 16.0  # left alone: it is scaled, and half of the mean's


def test_gradients_are_unscaled_once_however_often_they_are_clipped() -> None:
    accelerator, model, optimizer, _ = fp16_training()
    accelerator.backward(4 * model(torch.ones(1, 1)).sum())
    assert model.weight.grad.item() == 32.0
    assert accelerator.clip_grad_norm_(model.parameters(), 100.0).item() == pytest.approx(4.0)
    assert accelerator.clip_grad_norm_(model.parameters(), 2.0).item() == pytest.approx(4.0)
    accelerator.unscale_gradients(optimizer)
    assert model.weight.grad.item() == pytest.approx(2.0)
    before = model.weight.item()
    optimizer.step()
    assert model.weight.item() == pytest.approx(before - 2.0)


def test_one_scale_for_two_optimizers_moves_once_both_have_stepped() -> None:
    accelerator = Accelerator(
        mixed_precision="fp16",
        kwargs_handlers=[GradScalerKwargs(init_scale=8.0, growth_interval=1)],
    )
    models = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    first, second, *optimizers = accelerator.prepare(*models, *optimizers)
    for expected in (16.0, 32.0):
        x = torch.ones(1, 1)
        accelerator.backward(first(x).sum() + second(x).sum())
        optimizers[0].step()
        assert accelerator.scaler.get_scale() == expected / 2
        optimizers[1].step()
        assert accelerator.scaler.get_scale() == expected


def test_fp16_gives_the_gradient_that_plain_fp32_does_to_rounding() -> None:
    accelerator, model, *_ = fp16_training()
    x = torch.tensor([[0.5]])
    accelerator.backward((model(x) ** 2).sum())
    accelerator.unscale_gradients()
    plain = copy.deepcopy(accelerator.unwrap_model(model, keep_fp32_wrapper=False))
    plain.weight.grad = None
    (plain(x) ** 2).sum().backward()
    torch.testing.assert_close(model.weight.grad, plain.weight.grad, rtol=2e-3, atol=1e-4)


def test_weights_in_fp16_are_turned_down_where_their_gradient_would_be_unscaled() -> None:
    accelerator = Accelerator(mixed_precision="fp16")
    model = nn.Linear(1, 1).half()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1.0))
    accelerator.backward(model(torch.ones(1, 1)).sum())
    with pytest.raises(ValueError, match=r"fp16.*model\.half\(\)"):
        optimizer.step()


def test_a_precision_that_is_not_known_is_turned_down_with_the_nearest_first() -> None:
    with pytest.raises(ValueError, match=r"mixed_precision='bf61'.*Did you mean 'bf16'"):
        Accelerator(mixed_precision="bf61")
    AcceleratorState._reset_state(True)
    with pytest.raises(NotImplementedError, match="fp8"):
        Accelerator(mixed_precision="fp8")
