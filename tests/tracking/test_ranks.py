"""Tracking through Accelerator on real ranks: one run, wherever it is called from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rankzero import Accelerator
from rankzero.tracking.handles import Inert
from rankzero.tracking.reader import read_run
from tests.adapters.events import event_files, load, texts
from tests.ranks import run_ranks
from tests.tracking.scripts import the_run


def _train(folder: str, guarded: bool) -> dict[str, Any]:
    """Track as scripts do, in their two forms: on all ranks, or on the main process alone."""
    accelerator = Accelerator(log_with="tensorboard", project_dir=folder)
    calls = accelerator.is_main_process or not guarded
    if calls:
        accelerator.init_trackers("digits", config={"lr": 0.1})
    run = accelerator._hub.run
    for step in range(5):
        if calls:
            accelerator.log({"loss": torch.tensor(step / 7)}, step=step)
    accelerator.wait_for_everyone()
    total = accelerator.reduce(torch.ones(1)).item()
    tracker = accelerator.get_tracker("tensorboard")
    tracker.add_scalar("own", 2.5, 7)
    tracker.writer.add_text("note", "by hand", 7)
    tracker.tracker.add_text("note", "again", 8)
    accelerator.get_tracker("tensorboard", unwrap=True).add_scalar("own", 3.5, 8)
    with tracker.context(x=1) if isinstance(tracker, Inert) else torch.no_grad():
        pass
    inert = isinstance(tracker, Inert)
    unwrapped = type(accelerator.get_tracker("tensorboard", unwrap=True)).__name__
    count = len(accelerator.trackers)
    if calls:
        accelerator.end_training()
        accelerator.end_training()
    accelerator.wait_for_everyone()
    return {
        "id": run and run.id,
        "folder": run and str(run.folder),
        "inert": inert,
        "unwrapped": unwrapped,
        "trackers": count,
        "total": total,
    }


@pytest.mark.parametrize(("ranks", "guarded"), [(1, False), (2, False), (2, True)])
def test_a_run_is_the_same_one_run_called_on_all_ranks_or_on_the_main_process_alone(
    tmp_path: Path, ranks: int, guarded: bool
) -> None:
    found = run_ranks(_train, ranks, str(tmp_path), guarded)
    record = the_run(tmp_path)
    assert (record.status, record.config, record.info.world_size) == (
        "finished",
        {"lr": 0.1},
        ranks,
    )
    assert record.series["loss"].steps.tolist() == list(range(5))
    assert len(event_files(tmp_path)) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["digits"]
    assert len(list((tmp_path / "digits").iterdir())) == 1
    events = load(tmp_path)
    assert [event.step for event in events.Scalars("loss")] == list(range(5))
    assert [(e.step, e.value) for e in events.Scalars("own")] == [(7, 2.5), (8, 3.5)]
    assert texts(events, "note") == [(7, "by hand"), (8, "again")]
    main, *others = found
    assert (main["id"], main["folder"]) == (record.info.id, str(record.info.folder))
    assert (main["inert"], main["unwrapped"], main["trackers"]) == (False, "SummaryWriter", 1)
    for other in others:
        assert (other["inert"], other["unwrapped"]) == (True, "Inert")
        assert (other["id"], other["trackers"]) == ((None, 0) if guarded else (main["id"], 1))
    assert {rank["total"] for rank in found} == {float(ranks)}


def _mistaken() -> list[str]:
    messages = []
    accelerator = Accelerator(log_with="tensorboard")
    try:
        accelerator.init_trackers("p", init_kwargs={"tensorboard": {"nosuch": 1}})
    except ValueError as error:
        messages.append(str(error))
    try:
        Accelerator(log_with="tensorbord")
    except ValueError as error:
        messages.append(str(error))
    accelerator.wait_for_everyone()
    return messages


def test_a_callers_mistake_is_an_error_on_every_rank_alike() -> None:
    first, second = run_ranks(_mistaken, 2)
    assert first == second
    assert ["'nosuch'" in first[0], "Did you mean 'tensorboard'" in first[1]] == [True, True]


def _on_two_nodes(folder: str) -> str:
    from rankzero.tracking import registry
    from tests.tracking.trackers import ROWS

    registry.ADAPTERS.update(ROWS)
    accelerator = Accelerator(log_with="memory", project_dir=folder)
    for number in range(2):
        accelerator.init_trackers("p")
        accelerator.log({"number": number})
    identity = accelerator._hub.run.id
    accelerator.end_training()
    return identity


def test_two_nodes_make_one_run_and_a_second_run_of_a_launch_is_the_same_on_both(
    tmp_path: Path,
) -> None:
    node = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    first, second = run_ranks(_on_two_nodes, 2, str(tmp_path), env=node)
    assert first == second
    folders = sorted((tmp_path / "p").iterdir())
    assert [folder.name for folder in folders] == [first.removesuffix("-2"), first]
    for number, folder in enumerate(folders):
        record = read_run(folder)
        assert record.series["number"].values.tolist() == [number]
        assert record.status == "finished"


def test_an_inert_tracker_takes_anything_and_does_nothing() -> None:
    inert = Inert("wandb")
    inert.run.summary["best"] = inert.Table(columns=["a"]).add_data(1)
    with inert.start_span("x") as span:
        assert not span.child(1)[0].value
    assert list(inert) == []
    assert len(inert) == 0
    assert inert.name == "wandb"
    assert "does not record" in repr(inert)
    with pytest.raises(AttributeError):
        inert.__array__()
