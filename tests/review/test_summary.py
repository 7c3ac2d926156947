"""What a metric's numbers come to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rankzero.review.summary import better_direction, summarize
from rankzero.tracking.reader import Series

NAN, INF = math.nan, math.inf


def series(values: list[float], steps: list[int] | None = None) -> Series:
    return Series(
        np.array(range(len(values)) if steps is None else steps, dtype=np.int64),
        np.arange(len(values), dtype=np.float64),
        np.array(values, dtype=np.float64),
    )


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("loss", "lower"),
        ("train/loss", "lower"),
        ("eval_loss", "lower"),
        ("valLoss", "lower"),
        ("top1_error", "lower"),
        ("perplexity", "lower"),
        ("step time", "lower"),
        ("accuracy", "higher"),
        ("eval/acc@5", "higher"),
        ("acc1", "higher"),
        ("f1", "higher"),
        ("F1-macro", "higher"),
        ("roc_auc", "higher"),
        ("r2", "higher"),
        ("samples_per_second", "higher"),
        ("accuracy_loss", "lower"),
        ("loss/score", "higher"),
        ("lr", None),
        ("epoch", None),
        ("grad_norm", None),
        ("glossary", None),
        ("", None),
        ("per", None),
    ],
)
def test_a_metrics_name_tells_which_way_is_better(name: str, direction: str | None) -> None:
    assert better_direction(name) == direction


def test_the_best_value_is_the_first_that_reaches_it() -> None:
    summary = summarize("loss", series([3.0, 1.0, 2.0, 1.0], [0, 10, 20, 30]))
    assert (summary.final, summary.final_step) == (1.0, 30)
    assert (summary.best, summary.best_step) == (1.0, 10)
    assert (summary.highest, summary.highest_step) == (3.0, 0)
    assert summarize("accuracy", series([0.5, 0.9, 0.8])).best == 0.9
    assert summarize("lr", series([0.5, 0.9])).best is None
    assert summarize("lr", series([0.5, 0.9])).best_step is None


def test_values_that_are_not_finite_are_counted_and_never_the_best() -> None:
    summary = summarize("loss", series([2.0, NAN, -INF, 1.0, NAN]))
    assert (summary.best, summary.best_step) == (1.0, 3)
    assert math.isnan(summary.final)
    assert (summary.not_finite, summary.first_not_finite_step) == (3, 1)
    nothing = summarize("loss", series([NAN, INF]))
    assert math.isnan(nothing.lowest)
    assert math.isnan(nothing.highest)
    assert nothing.not_finite == nothing.points == 2
