"""What a logged value becomes."""

from __future__ import annotations

import datetime as dt
import enum
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
import torch

from rankzero.tracking.notices import Notices
from rankzero.tracking.values import convert, flatten
from tests.tracking.journals import exact

NAN, INF = math.nan, math.inf


class Phase(enum.Enum):
    TRAIN = "train"
    THIRD = 3
    ODD = (1, 2)


class Named(str, enum.Enum):
    LOSS = "loss"


class Meter:
    """A running average as torchmetrics and others have them."""

    def __float__(self) -> float:
        return 0.25


class Raising:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __float__(self) -> float:
        raise RuntimeError("no float")


class Unreadable(Mapping):
    def __getitem__(self, key: object) -> Any:
        raise RuntimeError("closed")

    def __iter__(self) -> Iterator:
        raise RuntimeError("closed")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (1.5, 1.5),
        (True, True),
        (1 << 70, 1 << 70),
        (-0.0, -0.0),
        (NAN, NAN),
        (-INF, -INF),
        ("text", "text"),
        (None, None),
        (torch.tensor(0.5), 0.5),
        (torch.tensor([2]), 2),
        (torch.tensor([[True]]), True),
        (torch.tensor(0.5, requires_grad=True) * 2, 1.0),
        (torch.tensor(0.1, dtype=torch.bfloat16), 0.10009765625),
        (torch.tensor(0.1, dtype=torch.float16), 0.0999755859375),
        (torch.tensor(0.1, dtype=torch.float64), 0.1),
        (torch.tensor(NAN), NAN),
        (torch.tensor((1 << 62) + 1), (1 << 62) + 1),
        (torch.nn.Parameter(torch.tensor(3.0)), 3.0),
        (np.float32(0.1), float(np.float32(0.1))),
        (np.float64(0.1), 0.1),
        (np.float16(0.1), float(np.float16(0.1))),
        (np.longdouble(0.5), 0.5),
        (np.int8(-3), -3),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (np.bool_(True), True),
        (np.array(7), 7),
        (np.array([[0.5]]), 0.5),
        (np.str_("text"), "text"),
        (np.datetime64("2026-12-01"), "2026-12-01"),
        (np.array(["2026-12-01"], dtype="datetime64[D]"), "2026-12-01"),
        (Decimal("0.1"), 0.1),
        (Decimal("NaN"), NAN),
        (Fraction(1, 3), 1 / 3),
        (dt.timedelta(seconds=90), 90.0),
        (dt.date(2026, 12, 1), "2026-12-01"),
        (PurePosixPath("a/b"), "a/b"),
        (Phase.TRAIN, "train"),
        (Phase.THIRD, 3),
        (Phase.ODD, "ODD"),
        (Named.LOSS, "loss"),
        (Meter(), 0.25),
    ],
    ids=str,
)
def test_what_is_one_number_or_text_is_kept_as_that_without_a_warning(
    value: Any, plain: Any, warnings: Callable[[], list[str]]
) -> None:
    assert exact(convert("loss", value, Notices())) == exact(plain)
    assert warnings() == []


@pytest.mark.parametrize(
    "value",
    [
        object(),
        [1.0, 2.0],
        {1.0, 2.0},
        1 + 2j,
        b"bytes",
        Raising(),
        Unreadable(),
        torch.ones(2),
        torch.tensor(1 + 2j),
        torch.empty(0),
        torch.ones(1, device="meta"),
        torch.ones(100, 100),
        np.ones(3),
        np.array(object()),
        np.complex64(1j),
        lambda: 1.0,
    ],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_kept_as_text_with_one_warning_that_names_its_key(
    value: Any, warnings: Callable[[], list[str]]
) -> None:
    notices = Notices()
    for _ in range(3):
        found = flatten({"good": 1.0, "train/odd": value}, notices)
        assert found.keys == ("good", "train/odd")
        assert found.values[0] == 1.0
        assert isinstance(found.values[1], str)
    (warning,) = warnings()
    assert "'train/odd'" in warning
    assert type(value).__qualname__ in warning


def test_two_odd_keys_are_warned_about_once_each(warnings: Callable[[], list[str]]) -> None:
    notices = Notices()
    for _ in range(3):
        flatten({"a": object(), "b": object()}, notices)
    assert ["'a'" in warnings()[0], "'b'" in warnings()[1], len(warnings())] == [True, True, 2]


def test_nested_mappings_become_grouped_keys() -> None:
    nested = {
        "eval": {"acc": 0.9, "deep": OrderedDict(f1=0.8, more={"x": 1})},
        "empty": {},
        "loss": 0.5,
    }
    before = repr(nested)
    found = flatten(nested, Notices())
    assert dict(zip(found.keys, found.values, strict=True)) == {
        "eval/acc": 0.9,
        "eval/deep/f1": 0.8,
        "eval/deep/more/x": 1,
        "loss": 0.5,
    }
    assert repr(nested) == before


@pytest.mark.timeout(30)
def test_mappings_that_hold_themselves_end_somewhere(warnings: Callable[[], list[str]]) -> None:
    cyclic: dict[str, Any] = {"loss": 0.5}
    cyclic.update(a=cyclic, b={"back": cyclic})
    found = flatten(cyclic, Notices())
    assert found.keys == ("loss", "a", "b/back")
    assert len(warnings()) == 2


@pytest.mark.parametrize(
    ("key", "text", "warned"),
    [
        (1, "1", 1),
        (None, "None", 1),
        (("a", 1), "('a', 1)", 1),
        (Named.LOSS, "loss", 0),
        ("", "", 0),
        ("größe %/:\n", "größe %/:\n", 0),
    ],
)
def test_keys_become_text(
    key: Any, text: str, warned: int, warnings: Callable[[], list[str]]
) -> None:
    notices = Notices()
    assert [flatten({key: 1.0}, notices).keys for _ in range(2)] == [(text,)] * 2
    assert len(warnings()) == warned


@pytest.mark.parametrize("make", [lambda: torch.zeros(1), lambda: np.zeros(1)])
def test_what_was_logged_does_not_change_with_the_tensor(make: Callable[[], Any]) -> None:
    value = make()
    found = flatten({"loss": value}, Notices())
    value += 1
    assert found.values == (0.0,)


def test_paths_of_this_system_are_text(tmp_path: Path) -> None:
    assert convert("folder", tmp_path, Notices()) == str(tmp_path)
