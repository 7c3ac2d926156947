"""``prepare``: any objects, in any order, once."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from rankzero import Accelerator
from rankzero.optimizer import AcceleratedOptimizer
from rankzero.scheduler import AcceleratedScheduler


def parts() -> tuple:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return model, optimizer, scheduler, DataLoader(torch.ones(4, 2), batch_size=2)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 1, 0), (3, 2, 0, 1)])
def test_objects_come_back_prepared_in_the_order_given(order: tuple[int, ...]) -> None:
    objects = parts()
    given = [objects[i] for i in order]
    prepared = dict(zip(order, Accelerator().prepare(*given), strict=True))
    assert prepared[0] is objects[0]
    assert isinstance(prepared[1], AcceleratedOptimizer)
    assert isinstance(prepared[2], AcceleratedScheduler)
    assert prepared[2].optimizers == [prepared[1]]
    assert isinstance(prepared[3], DataLoader)


def test_what_is_of_no_known_kind_is_returned_unchanged() -> None:
    thing = object()
    accelerator = Accelerator()
    assert accelerator.prepare(thing) is thing
    assert accelerator.prepare("text", None, 3) == ("text", None, 3)


def test_preparing_twice_changes_nothing() -> None:
    accelerator = Accelerator()
    once = accelerator.prepare(*parts())
    assert all(a is b for a, b in zip(accelerator.prepare(*once), once, strict=True))


def test_device_placement_needs_one_entry_an_object() -> None:
    with pytest.raises(ValueError, match="device_placement=.*1 entries for 4 objects"):
        Accelerator().prepare(*parts(), device_placement=[True])


def test_a_prepared_optimizer_passes_for_the_one_it_holds() -> None:
    model, optimizer, *_ = parts()
    prepared = Accelerator().prepare(optimizer)
    assert isinstance(prepared, torch.optim.Optimizer)
    assert prepared.param_groups is optimizer.param_groups
    assert prepared.defaults["lr"] == 0.5
    prepared.param_groups[0]["lr"] = 0.25
    assert optimizer.param_groups[0]["lr"] == 0.25
    prepared.add_param_group({"params": [nn.Parameter(torch.ones(1))]})
    assert len(optimizer.param_groups) == 2
    scheduler = torch.optim.lr_scheduler.StepLR(prepared, 1)
    assert scheduler.get_last_lr() == [0.25, 0.5]
    model(torch.ones(1, 2)).sum().backward()
    prepared.step()
    prepared.load_state_dict(prepared.state_dict())
    assert prepared.state is optimizer.state


def test_a_scheduler_follows_the_optimizer_it_was_made_for() -> None:
    accelerator = Accelerator()
    first, second = parts(), parts()
    a, b, scheduler = accelerator.prepare(first[1], second[1], second[2])
    assert scheduler.optimizers == [b]
    assert a is not b


def test_one_cycle_does_not_run_over_its_end() -> None:
    accelerator = Accelerator()
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=3)
    optimizer, scheduler = accelerator.prepare(optimizer, cycle)
    for _ in range(5):
        optimizer.step()
        scheduler.step()
    assert cycle.last_epoch == 3


def test_a_scheduler_may_move_without_its_optimizer() -> None:
    accelerator = Accelerator(gradient_accumulation_steps=2, step_scheduler_with_optimizer=False)
    model, optimizer, scheduler, _ = parts()
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    with accelerator.accumulate(model):
        optimizer.optimizer.step()
        scheduler.step()
    assert scheduler.last_epoch == 1


def test_a_plateau_scheduler_takes_its_metric() -> None:
    accelerator = Accelerator()
    _, optimizer, *_ = parts()
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
    optimizer, scheduler = accelerator.prepare(optimizer, plateau)
    for loss in (1.0, 2.0):
        scheduler.step(loss)
    assert scheduler.get_last_lr() == [pytest.approx(0.05)]
