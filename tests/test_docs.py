"""What the documentation says is true: links lead somewhere, code runs, commands exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rankzero.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text()
    for name in re.findall(r"`((?:rankzero|tests|docs|examples|benchmarks)/[\w./]*)`", text):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_that_are_shown_exist(page: Path) -> None:
    text = page.read_text()
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for target in re.findall(r"^make (\w+)", text, re.MULTILINE):
        assert target in targets, target
    known = {command.name for command in COMMANDS}
    for command in re.findall(r"^rankzero (\w+)", text, re.MULTILINE):
        assert command in known, command
    for command in re.findall(r"`rankzero (\w+)", text):
        assert command in known, command


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```python" in page.read_text()], ids=named
)
def test_python_code_runs(page: Path, tmp_path: Path) -> None:
    code = "\n".join(
        re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    )
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=tmp_path,
        env={**os.environ, "RANKZERO_USE_CPU": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "runs").rglob("journal.rz"))


def test_the_readme_starts_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert next(line for line in lines if line.startswith("make ")).startswith("make demo")
    assert any(line.startswith("make test") for line in lines)
