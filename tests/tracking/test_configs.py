"""A configuration of anything becomes plain data: the same each time, and never an error."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime as dt
import enum
import functools
import math
import re
import threading
import types
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rankzero.tracking.configs import flat_config, plain_config, to_yaml
from rankzero.tracking.reader import read_run


class Mode(enum.Enum):
    FAST = "fast"
    PAIR = (1, 2)


@dataclasses.dataclass
class Optim:
    lr: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    out: PurePath = dataclasses.field(default_factory=lambda: PurePosixPath("out"))


class Arguments(argparse.Namespace):
    pass


class Dumped:
    def to_dict(self) -> dict[str, Any]:
        return {"hidden": 16, "inner": Optim()}


class Plain:
    pass


class Raising:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__

    def to_dict(self) -> dict:
        raise RuntimeError("no dict")


class Unresolved(collections.UserDict):
    def __getitem__(self, key: Any) -> Any:
        raise KeyError(key)


class Pair(NamedTuple):
    a: int
    b: int


def function() -> None:
    pass


HERE = __name__


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (None, None),
        (1e-3, 1e-3),
        (1 << 100, 1 << 100),
        (True, True),
        ("ä\n", "ä\n"),
        ("\ud800", "\\ud800"),
        (b"ab", "b'ab'"),
        (PurePosixPath("a/b"), "a/b"),
        (Mode.FAST, "fast"),
        (Mode.PAIR, "PAIR"),
        (Decimal("0.5"), 0.5),
        (dt.date(2026, 12, 1), "2026-12-01"),
        (("a", ["b", (1,)]), ["a", ["b", [1]]]),
        ({"b", "a", "c"}, ["a", "b", "c"]),
        (frozenset({3, 1, 2}), [1, 2, 3]),
        ({1: "int", "1": "text", None: 0}, {"1": "int", "1_": "text", "None": 0}),
        (range(10**12), "range(0, 1000000000000)"),
        (Pair(1, 2), [1, 2]),
        (Optim(), {"lr": 0.1, "betas": [0.9, 0.95], "out": "out"}),
        (argparse.Namespace(a=1, p=PurePosixPath("x")), {"a": 1, "p": "x"}),
        (Arguments(a=1), {"a": 1}),
        (types.SimpleNamespace(a=[1]), {"a": [1]}),
        (
            Dumped(),
            {"hidden": 16, "inner": {"lr": 0.1, "betas": [0.9, 0.95], "out": "out"}},
        ),
        (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Unresolved(a=1), {"a": "<KeyError>"}),
        (torch.bfloat16, "torch.bfloat16"),
        (torch.device("cpu", 0), "cpu:0"),
        (torch.Size([2, 3]), [2, 3]),
        (torch.tensor(0.5), 0.5),
        (torch.tensor([1, 2]), [1, 2]),
        (torch.ones(2000), "tensor(shape=(2000,), dtype=torch.float32, device=cpu)"),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2]]), [[1, 2]]),
        (np.dtype("float32"), "float32"),
        (int, "builtins.int"),
        (torch.nn.Linear, "torch.nn.modules.linear.Linear"),
        (torch.relu, "torch._VariableFunctionsClass.relu"),
        (function, f"{HERE}.function"),
        (lambda: None, f"{HERE}.<lambda>"),
        (functools.partial(function), "functools.partial(<function function>)"),
        (Plain(), f"<{HERE}.Plain object>"),
        (object(), "<object object>"),
        (threading.Lock(), "<unlocked _thread.lock object>"),
        (Raising(), "<Raising>"),
        (math.inf, math.inf),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_setting_becomes_plain_data(value: Any, plain: Any) -> None:
    found = plain_config({"x": value, "section": {"x": value}})
    assert found == {"x": plain, "section": {"x": plain}}
    assert type(found["x"]) is type(plain)
    assert yaml.safe_load(to_yaml(found)) == found


@pytest.mark.parametrize(
    "config", [Optim(), argparse.Namespace(lr=0.1), Dumped(), {"lr": 0.1}, Unresolved(lr=1)]
)
def test_a_configuration_may_be_an_object_of_many_kinds(config: Any) -> None:
    assert "config" not in plain_config(config)


@pytest.mark.parametrize("config", [[1, 2], "text", 3, Plain(), Raising(), object()])
def test_what_is_no_mapping_is_kept_under_one_name(config: Any) -> None:
    assert list(plain_config(config)) == ["config"]


def test_nothing_that_is_kept_holds_a_memory_address() -> None:
    key, bound = Plain(), Dumped().to_dict
    config = {
        "objects": [Plain(), object(), threading.Lock(), iter([]), function, bound, print],
        "partial": functools.partial(bound, Plain()),
        "generator": torch.Generator(),
        "stream": (n for n in []),
        key: {(Plain(), 1): 2},
        "weird": {Plain(), object()},
    }
    text = repr(plain_config(config))
    assert not re.search(r"0x[0-9a-f]{4}", text), text
    assert repr(plain_config(config)) == text


def test_a_cycle_is_cut_with_a_note() -> None:
    config: dict[str, Any] = {"lr": 0.1, "list": []}
    config["self"] = config
    config["list"].append(config["list"])
    shared = [1]
    config["twice"] = [shared, shared]
    assert plain_config(config) == {
        "lr": 0.1,
        "list": ["<cycle: list>"],
        "self": "<cycle: dict>",
        "twice": [[1], [1]],
    }


def test_what_is_very_deep_or_very_long_ends_somewhere() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    plain = plain_config({"deep": deep, "long": list(range(100_000)), "text": "x" * 1_000_000})
    assert plain["long"] == list(range(100_000))
    assert len(plain["text"]) == 1_000_000
    assert yaml.safe_load(to_yaml({"deep": plain["deep"]})) == {"deep": plain["deep"]}


def test_the_original_is_not_changed() -> None:
    config = {"path": PurePosixPath("a"), "nested": {1: {2, 3}}, "ns": argparse.Namespace(a=None)}
    before = repr(config)
    plain_config(config)
    assert repr(config) == before


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=100)
@given(st.dictionaries(st.text(), values, max_size=4))
def test_plain_data_stays_what_it_is_and_is_read_back_from_yaml(config: dict[str, Any]) -> None:
    plain = plain_config(config)
    assert plain == config
    assert yaml.safe_load(to_yaml(plain)) == plain


def test_flat_settings_keep_numbers_and_turn_the_rest_into_text() -> None:
    plain = {"a": {"b": {"c": 1}, "d": True}, "e": None, "f": [1, "ä"], "g": {}, "h": 0.5, "i": "x"}
    assert flat_config(plain) == {
        "a/b/c": 1,
        "a/d": True,
        "e": "None",
        "f": '[1, "ä"]',
        "g": "{}",
        "h": 0.5,
        "i": "x",
    }


def test_a_runs_settings_are_in_its_journal_in_its_folder_and_with_its_trackers(
    make_hub: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.tracking.trackers import Memory

    elsewhere = tmp_path / "cwd"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    config = {"lr": 1e-3, "optim": Optim(), "sched": None, "nan": math.nan}
    hub = make_hub()
    hub.init_trackers("p", config=config)
    folder = hub.run.folder
    hub.end()
    plain = {"lr": 1e-3, "optim": {"lr": 0.1, "betas": [0.9, 0.95], "out": "out"}, "sched": None}
    for found in (
        read_run(folder).config,
        yaml.safe_load((folder / "config.yaml").read_text()),
        *Memory.made[0].configs,
    ):
        assert math.isnan(found.pop("nan"))
        assert found == plain
    assert len(Memory.made[0].configs) == 1
    assert list(elsewhere.iterdir()) == []
