"""The house's frame: imports point one way, and importing rankzero costs next to nothing."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "rankzero"

# Each part, and the parts that it may import from. What is not listed here may not be imported.
ALLOWED: dict[str, set[str]] = {
    "config": set(),
    "distributed": {"config"},
    "training": {"config", "distributed"},
    "checkpointing": {"config", "distributed"},
    "tracking": {"config", "distributed", "adapters"},
    "adapters": {"config", "tracking"},
    "review": {"config", "tracking"},
    "arguments": {"config"},
    "accelerator": {
        "arguments",
        "config",
        "distributed",
        "training",
        "checkpointing",
        "tracking",
    },
    "cli": {"accelerator", "config", "distributed", "training", "tracking", "review"},
    "utils": {"config", "distributed", "training", "checkpointing"},
    # Names that scripts import: one line each, to where the thing lives.
    "state": {"config", "distributed"},
    "logging": {"distributed"},
    "optimizer": {"training"},
    "scheduler": {"training"},
    "data_loader": {"training"},
    "__main__": {"cli"},
    "__init__": {"accelerator", "config", "distributed"},
}


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "rankzero":
                names = [f"rankzero.{alias.name}" for alias in node.names]
            elif node.module:
                names = [node.module]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("rankzero.")}
    return {name for name in found if not name.startswith("__version")}


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_part_imports_only_what_stands_below_it(path: Path) -> None:
    part = part_of(path)
    assert part in ALLOWED, f"{part} is new: say in this table what it may import"
    assert imported_parts(path) - {part} <= ALLOWED[part]


def test_adapters_are_named_by_the_registry_alone() -> None:
    for path in (ROOT / "tracking").rglob("*.py"):
        assert "adapters" not in imported_parts(path) or path.name == "registry.py", path


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys, json; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(run.stdout))


def test_importing_rankzero_imports_neither_torch_nor_a_tracker() -> None:
    loaded = modules_after("import rankzero")
    assert "torch" not in loaded
    assert "tensorboard" not in loaded


def test_importing_the_accelerator_imports_no_tracker() -> None:
    loaded = modules_after("from rankzero import Accelerator")
    assert "torch" in loaded
    for tracker in (
        "tensorboard",
        "torch.utils.tensorboard",
        "wandb",
        "mlflow",
        "comet_ml",
        "rich",
    ):
        assert tracker not in loaded


def test_every_public_name_resolves() -> None:
    import rankzero

    for name in rankzero.__all__:
        assert getattr(rankzero, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Acelerator'"):
        rankzero.Acelerator  # noqa: B018
