"""A curve in one line."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankzero.review.curves import ASCII_BLOCKS, BLOCKS, GAP, spark

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("values", "width", "curve"),
    [
        ([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 8, "▁▂▃▄▅▆▇█"),
        ([7.0, 0.0], 8, "█▁"),
        ([0.0, 0.0, 7.0, 7.0], 2, "▁█"),
        ([0.0, NAN, 1.0], 8, "▁ █"),
        ([0.0, INF, 1.0], 8, "▁ █"),
        ([NAN, -INF], 8, "  "),
        ([NAN, 0.0, 1.0, NAN], 2, "▁█"),
        ([5.0], 8, "▄"),
        ([5.0, 5.0, 5.0], 8, "▄▄▄"),
        ([-1e308, 1e308], 8, "▁█"),
    ],
)
def test_heights_follow_the_values_and_what_is_not_finite_is_a_gap(
    values: list[float], width: int, curve: str
) -> None:
    assert spark(np.array(values), width) == curve


def test_a_terminal_without_blocks_gets_ascii() -> None:
    assert spark(np.arange(8.0), 8, ASCII_BLOCKS) == ASCII_BLOCKS
    assert len(ASCII_BLOCKS) == len(BLOCKS)
    assert ASCII_BLOCKS.isascii()


@given(st.lists(st.floats(), min_size=1, max_size=300), st.integers(1, 60))
def test_any_values_give_a_line_no_wider_than_asked(values: list[float], width: int) -> None:
    curve = spark(np.array(values), width)
    assert len(curve) == min(width, len(values))
    assert set(curve) <= {*BLOCKS, GAP}
    if all(map(math.isfinite, values)):
        assert GAP not in curve
