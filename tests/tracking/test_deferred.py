"""Numbers that are on a device when they are logged; a device that is not there is played."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rankzero.tracking import values
from rankzero.tracking.deferred import Deferred
from rankzero.tracking.reader import read_run


class Slow:
    """Stands for a device's event: ready when told."""

    def __init__(self) -> None:
        self.done = False

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return self.done


class Events:
    Event = Slow


def test_a_devices_number_is_written_once_it_is_there_and_was_taken_at_the_call(
    make_hub: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(values, "snapshot", lambda tensor: Deferred(tensor.clone(), Events))
    monkeypatch.setattr(
        values, "_convert_tensor", lambda tensor: (True, values.snapshot(tensor.view(())))
    )
    hub = make_hub()
    tensor = torch.tensor([1.0])
    hub.log({"loss": tensor}, step=0)  # before the run starts, too
    hub.init_trackers("p")
    folder = hub.run.folder
    hub.log({"loss": tensor, "n": 1}, step=1)
    tensor += 1
    hub.log({"other": 5.0}, step=2)
    assert list(read_run(folder).series) == ["other"]
    for call in list(hub._recorder._awaited):
        for value in call[0].values:
            if isinstance(value, Deferred):
                value._event.done = True
    hub.end()
    record = read_run(folder)
    assert record.series["loss"].values.tolist() == [1.0, 1.0]
    assert record.series["loss"].steps.tolist() == [0, 1]
    assert record.status == "finished"


def test_a_device_that_fails_costs_its_own_values_only(
    make_hub: Callable, monkeypatch: pytest.MonkeyPatch, warnings: Callable[[], list[str]]
) -> None:
    class Broken:
        def record(self) -> None:
            pass

        def query(self) -> bool:
            raise RuntimeError("device lost")

    class Lost(Deferred):
        def read(self) -> float:
            raise RuntimeError("device lost")

    events = type("events", (), {"Event": Broken})
    monkeypatch.setattr(values, "_convert_tensor", lambda tensor: (True, Lost(tensor, events)))
    hub = make_hub()
    hub.init_trackers("p")
    folder = hub.run.folder
    for step in range(3):
        hub.log({"loss": torch.tensor(1.0), "n": step}, step=step)
    hub.end()
    record = read_run(folder)
    assert record.series["n"].values.tolist() == [0, 1, 2]
    assert [text.text for text in record.texts["loss"]] == ["<RuntimeError: device lost>"] * 3
    assert len([text for text in warnings() if "device lost" in text]) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or ROCm device")
def test_a_gpus_number_is_the_one_it_had_at_the_call(make_hub: Callable) -> None:
    hub = make_hub()
    hub.init_trackers("p")
    folder = hub.run.folder
    value = torch.zeros((), device="cuda")
    for step in range(100):
        hub.log({"value": value, "half": value.bfloat16()}, step=step)
        value += 1
    hub.end()
    assert read_run(folder).series["value"].values.tolist() == list(range(100))
