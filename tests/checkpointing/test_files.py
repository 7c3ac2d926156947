"""Saved files: once, whole, and readable without rankzero."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from rankzero import Accelerator
from rankzero.checkpointing.files import load
from tests.ranks import run_ranks


def _save(path: str) -> None:
    accelerator = Accelerator()
    model = accelerator.prepare(nn.Linear(2, 1))
    accelerator.save(accelerator.unwrap_model(model).state_dict(), path)
    accelerator.wait_for_everyone()
    if not accelerator.is_main_process:
        assert Path(path).exists()


def test_weights_saved_by_two_ranks_load_into_the_bare_model_without_rankzero(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "weights.pt"
    run_ranks(_save, 2, str(path))
    assert [p.name for p in path.parent.iterdir()] == ["weights.pt"]
    code = (
        "import sys, torch; model = torch.nn.Linear(2, 1)\n"
        f"model.load_state_dict(torch.load({str(path)!r}))\n"
        "assert 'rankzero' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Unpicklable:
    def __reduce__(self) -> str:
        raise RuntimeError("no")


def test_a_save_that_fails_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    accelerator = Accelerator()
    accelerator.save({"a": torch.ones(2)}, path)
    with pytest.raises(RuntimeError, match="no"):
        accelerator.save({"a": torch.zeros(2), "b": Unpicklable()}, path)
    assert torch.equal(load(path)["a"], torch.ones(2))
    assert [p.name for p in tmp_path.iterdir()] == ["weights.pt"]


def test_safe_serialization_writes_shared_and_strided_tensors(tmp_path: Path) -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    tensors = {"a": weight, "tied": weight, "t": weight.t(), "empty": torch.zeros(0)}
    path = tmp_path / "model.safetensors"
    Accelerator().save(tensors, path, safe_serialization=True)
    for name, tensor in load(path).items():
        assert torch.equal(tensor, tensors[name])


def test_safe_serialization_of_something_else_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"model\.state_dict\(\)"):
        Accelerator().save({"epoch": 3}, tmp_path / "x.safetensors", safe_serialization=True)
    assert list(tmp_path.iterdir()) == []


def test_an_open_file_is_written_to() -> None:
    buffer = io.BytesIO()
    Accelerator().save([1, 2], buffer)
    buffer.seek(0)
    assert torch.load(buffer) == [1, 2]
