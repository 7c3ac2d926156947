"""``rankzero env``: what holds here and why, fit to be pasted into a bug report."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import rankzero as package
from rankzero.cli.env import SETTINGS, settings
from rankzero.distributed.devices import DEVICES
from rankzero.tracking.hub import DEFAULT_END_SECONDS
from rankzero.tracking.registry import ADAPTERS
from tests.cli.commands import assert_one_line, rankzero

ABSENT = next(row.name for row in DEVICES if not row.is_available())
SECRETS = {"RANKZERO_API_KEY": "s3cret", "ACCELERATE_TOKEN": "s3cret", "WANDB_API_KEY": "s3cret"}


@pytest.fixture(scope="module")
def report() -> Any:
    """The report where a launcher has set some variables, and secrets lie about."""
    variables = {
        "RANK": "1",
        "MASTER_ADDR": "node-7",
        "RANKZERO_MIXED_PRECISION": "bf16",
        "ACCELERATE_MIXED_PRECISION": "fp16",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4",
        "RANKZERO_USE_CPU": "perhaps",
    }
    return rankzero("env", env={**variables, **SECRETS})


def rows(text: str) -> dict[str, dict[str, str]]:
    """Return the report's rows by section and name."""
    sections: dict[str, dict[str, str]] = {}
    for block in text.strip().split("\n\n"):
        title, *lines = block.splitlines()
        sections[title] = {}
        for line in lines:
            name, value = re.fullmatch(r"  (\S.*?)  +(\S.*)", line).groups()  # type: ignore[union-attr]
            sections[title][name] = value
    return sections


def test_the_report_has_its_sections_and_their_facts(report: Any) -> None:
    assert (report.returncode, report.stderr) == (0, "")
    found = rows(report.stdout)
    assert list(found) == [
        "versions",
        "machine",
        "devices",
        "settings",
        "trackers",
        "set around it",
    ]
    assert found["versions"]["rankzero"] == package.__version__
    assert found["versions"]["torch"] == torch.__version__
    assert found["devices"]["cpu"].startswith("1, autocast: bfloat16")
    assert list(found["trackers"]) == list(ADAPTERS)
    assert found["trackers"]["tensorboard"] == "available"
    assert found["set around it"] == {"RANK": "1", "MASTER_ADDR": "node-7"}


def test_each_setting_has_its_source(report: Any) -> None:
    found = rows(report.stdout)["settings"]
    assert found["mixed_precision"] == "bf16  (from RANKZERO_MIXED_PRECISION)"
    steps = "4  (from ACCELERATE_GRADIENT_ACCUMULATION_STEPS)"
    assert found["gradient_accumulation_steps"] == steps
    assert found["debug_mode"] == "no  (default)"
    assert found.keys() == {name.lower() for name in SETTINGS} | {"also set"}


def test_a_value_that_will_be_refused_is_remarked(report: Any) -> None:
    remark = rows(report.stdout)["settings"]["use_cpu"]
    assert remark.startswith("perhaps  (from RANKZERO_USE_CPU)  <- ")
    assert "yes or no" in remark


def test_what_may_be_a_secret_is_shown_by_name_alone(report: Any) -> None:
    assert rows(report.stdout)["settings"]["also set"] == "ACCELERATE_TOKEN, RANKZERO_API_KEY"
    assert "s3cret" not in report.stdout
    assert "WANDB" not in report.stdout


@pytest.mark.parametrize(
    ("name", "text", "remark"),
    [
        ("MIXED_PRECISION", "bf61", "Did you mean 'bf16'?"),
        ("GRADIENT_ACCUMULATION_STEPS", "0", "1 or more"),
        ("GRADIENT_ACCUMULATION_STEPS", "two", "not a whole number"),
        ("TORCH_DEVICE", "cud", "Did you mean 'cuda'?"),
        ("TORCH_DEVICE", f"{ABSENT}:0", "no such device"),
        ("DEBUG_MODE", "2", "yes or no"),
        ("LOG_LEVEL", "loud", "DEBUG, INFO"),
        ("TRACKING_END_TIMEOUT", "soon", "number of seconds"),
    ],
)
@pytest.mark.parametrize("prefix", ["RANKZERO", "ACCELERATE"])
def test_every_setting_is_read_as_a_script_reads_it(
    prefix: str, name: str, text: str, remark: str
) -> None:
    variable = f"{prefix}_{name}"
    value = dict(settings({variable: text}))[name.lower()]
    assert value.startswith(f"{text}  (from {variable})  <- {variable}=")
    assert remark in value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("USE_CPU", "on"),
        ("MIXED_PRECISION", "BF16"),
        ("TORCH_DEVICE", "cpu"),
        ("LOG_LEVEL", "debug"),
        ("TRACKING_END_TIMEOUT", "2.5"),
    ],
)
def test_a_good_value_has_no_remark(name: str, text: str) -> None:
    variable = f"RANKZERO_{name}"
    assert dict(settings({variable: text}))[name.lower()] == f"{text}  (from {variable})"


def test_the_defaults_shown_are_those_that_hold() -> None:
    assert float(SETTINGS["TRACKING_END_TIMEOUT"]) == DEFAULT_END_SECONDS
    accelerator = package.Accelerator(cpu=True)
    assert SETTINGS["MIXED_PRECISION"] == accelerator.mixed_precision
    assert SETTINGS["GRADIENT_ACCUMULATION_STEPS"] == str(accelerator.gradient_accumulation_steps)


def test_env_takes_no_argument() -> None:
    assert_one_line(rankzero("env", "all"), "rankzero env: 'all' is one argument too many")
