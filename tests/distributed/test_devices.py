"""The device table: every row keeps one contract."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from rankzero.config.enums import DistributedType
from rankzero.distributed import devices
from rankzero.distributed.devices import DEVICES, DeviceRow, find_device, row_named, row_of

ROWS = pytest.mark.parametrize("row", DEVICES, ids=lambda row: row.name)
gpu = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or ROCm device here")


@ROWS
def test_a_row_can_be_asked_whether_its_device_is_here(row: DeviceRow) -> None:
    assert isinstance(row.is_available(), bool)
    assert (row.count() > 0) == row.is_available()


@ROWS
def test_a_row_names_its_backend_types_and_distributed_type(row: DeviceRow) -> None:
    assert isinstance(row.distributed_type, DistributedType)
    assert row.collective_backend is None or row.name in row.collective_backend + "gloo:cpu"
    assert set(row.autocast_dtypes) <= {torch.bfloat16, torch.float16}


class FakeModule(types.SimpleNamespace):
    """Stands for torch.cuda and its like, with two devices."""

    def __init__(self) -> None:
        super().__init__(calls=[], state=torch.zeros(2, dtype=torch.uint8))

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.calls.append((name, *args))

    def get_rng_state(self) -> torch.Tensor:
        return self.state

    def set_rng_state(self, state: torch.Tensor) -> None:
        self.state = state


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_a_process_binds_the_device_of_its_local_rank(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeModule()
    monkeypatch.setattr(torch, name, fake)
    row = DeviceRow(name, DistributedType.MULTI_GPU, "gloo", found=fake.is_available)
    assert row.bind(1) == torch.device(name, 1)
    assert fake.calls == [("set_device", torch.device(name, 1))]
    with pytest.raises(RuntimeError, match=f"local rank 2 has no {name} device.*shows 2"):
        row.bind(2)


def test_a_row_hands_memory_seeds_and_generators_to_its_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeModule()
    monkeypatch.setattr(torch, "xpu", fake)
    row = DeviceRow("xpu", DistributedType.MULTI_XPU, "gloo", found=fake.is_available)
    row.synchronize()
    row.empty_cache()
    row.manual_seed(3)
    assert fake.calls == [("synchronize",), ("empty_cache",), ("manual_seed_all", 3)]
    row.set_rng_state(torch.ones(2, dtype=torch.uint8))
    assert row.get_rng_state().tolist() == [1, 1]


def test_xla_asks_its_own_package(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list = []
    model = types.ModuleType("torch_xla.core.xla_model")
    model.xla_device = lambda: "cpu"  # type: ignore[attr-defined]
    model.mark_step = lambda: calls.append("mark_step")  # type: ignore[attr-defined]
    model.wait_device_ops = lambda: calls.append("wait")  # type: ignore[attr-defined]
    model.set_rng_state = lambda s: calls.append(s)  # type: ignore[attr-defined]
    model.get_rng_state = lambda: 9  # type: ignore[attr-defined]
    core = types.ModuleType("torch_xla.core")
    core.xla_model = model  # type: ignore[attr-defined]
    package = types.ModuleType("torch_xla")
    for name, module in (
        ("torch_xla", package),
        ("torch_xla.core", core),
        ("torch_xla.core.xla_model", model),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    row = row_named("xla")
    assert row.bind(0) == torch.device("cpu")
    row.synchronize()
    row.manual_seed(4)
    row.set_rng_state(row.get_rng_state())
    assert calls == ["mark_step", "wait", 4, 9]


def test_the_cpus_generator_is_torchs() -> None:
    row = row_named("cpu")
    state = row.get_rng_state()
    first = torch.rand(1)
    row.set_rng_state(state)
    assert torch.equal(torch.rand(1), first)
    row.synchronize()
    row.empty_cache()


def test_the_first_device_found_is_used_and_the_cpu_last(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = row_named("cpu")
    there = DeviceRow("xpu", DistributedType.MULTI_XPU, "gloo", found=lambda: True)
    missing = DeviceRow("cuda", DistributedType.MULTI_GPU, "gloo", found=lambda: False)
    monkeypatch.setattr(devices, "DEVICES", (missing, there, cpu))
    assert find_device() is there
    assert find_device(cpu=True) is cpu
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    assert find_device() is cpu


def test_the_environment_may_choose_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKZERO_TORCH_DEVICE", "cpu")
    assert find_device().name == "cpu"
    monkeypatch.setenv("RANKZERO_TORCH_DEVICE", "cudda")
    with pytest.raises(ValueError, match="RANKZERO_TORCH_DEVICE='cudda'.*Did you mean 'cuda'"):
        find_device()
    monkeypatch.setenv("RANKZERO_TORCH_DEVICE", "npu:1")
    with pytest.raises(RuntimeError, match="RANKZERO_TORCH_DEVICE='npu:1', but this machine"):
        find_device()


def test_a_device_knows_its_row() -> None:
    assert row_of("cuda:1").name == "cuda"
    assert row_of(torch.device("cpu")).name == "cpu"


@gpu
@needs_gpu
def test_a_real_gpu_is_bound_seeded_and_waited_for() -> None:
    row = row_named("cuda")
    assert row.bind(0) == torch.device("cuda", 0)
    row.manual_seed(1)
    state = row.get_rng_state()
    first = torch.rand(1, device="cuda")
    row.set_rng_state(state)
    assert torch.equal(torch.rand(1, device="cuda"), first)
    row.synchronize()
    row.empty_cache()
