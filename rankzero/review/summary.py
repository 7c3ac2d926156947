"""What a run's numbers come to: the last value, the best one, and where."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from rankzero.tracking.reader import RunRecord, Series

Direction = Literal["lower", "higher"]

# Words in a metric's name that tell which way is better; the first of these that is found decides.
HIGHER = {
    "acc", "accuracy", "ap", "auc", "auroc", "bleu", "correct", "dice", "f1", "hits", "iou", "map",
    "mfu", "mrr", "ndcg", "precision", "psnr", "r2", "recall", "return", "reward", "rouge", "score",
    "ssim", "throughput",
}  # fmt: skip
LOWER = {
    "bpb", "cer", "duration", "eer", "elapsed", "error", "err", "fid", "latency", "loss", "losses",
    "mae", "mse", "nll", "perplexity", "ppl", "rmse", "seconds", "time", "wer",
}  # fmt: skip


@dataclass(frozen=True)
class MetricSummary:
    """One metric of a run in brief.

    Attributes:
        name: The metric's name.
        direction: Which way is better, as far as the name tells; else None.
        points: Number of values, those that are not finite included.
        final: The value logged last, which may be NaN or infinite.
        final_step: The step of ``final``.
        lowest: The lowest finite value; NaN where there is none.
        lowest_step: The first step that has it.
        highest: The highest finite value; NaN where there is none.
        highest_step: The first step that has it.
        not_finite: Number of values that are NaN or infinite.
        first_not_finite_step: The step of the first of them; None where there is none.
    """

    name: str
    direction: Direction | None
    points: int
    final: float
    final_step: int
    lowest: float
    lowest_step: int
    highest: float
    highest_step: int
    not_finite: int
    first_not_finite_step: int | None

    @property
    def best(self) -> float | None:
        """The best finite value; None where the name does not tell which way is better."""
        if self.direction is None:
            return None
        return self.lowest if self.direction == "lower" else self.highest

    @property
    def best_step(self) -> int | None:
        """The first step that has the best value."""
        if self.direction is None:
            return None
        return self.lowest_step if self.direction == "lower" else self.highest_step


def better_direction(name: str) -> Direction | None:
    """Tell from a metric's name which way is better; None where it doesn't say.

    The last telling word decides, as it names the thing itself ("accuracy_loss" is a loss), except
    that a rate is better when it is higher ("samples_per_second").
    """
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = re.findall(r"[a-z]+[0-9]*", spaced.lower())
    if "per" in words[:-1] and words[words.index("per") + 1] in ("second", "seconds", "sec", "s"):
        return "higher"
    for word in reversed(words):
        for form in (word, re.sub(r"[0-9]+$", "", word)):
            if form in HIGHER:
                return "higher"
            if form in LOWER:
                return "lower"
    return None


def summarize(name: str, series: Series) -> MetricSummary:
    """Return a metric in brief; ``series`` has one point at least."""
    values = series.values
    finite = np.isfinite(values)
    odd = np.flatnonzero(~finite)
    if len(odd) == len(values):
        low = high = 0
        lowest = highest = float("nan")
    else:
        low = int(np.argmin(np.where(finite, values, np.inf)))
        high = int(np.argmax(np.where(finite, values, -np.inf)))
        lowest, highest = float(values[low]), float(values[high])
    return MetricSummary(
        name=name,
        direction=better_direction(name),
        points=len(values),
        final=float(values[-1]),
        final_step=int(series.steps[-1]),
        lowest=lowest,
        lowest_step=int(series.steps[low]),
        highest=highest,
        highest_step=int(series.steps[high]),
        not_finite=len(odd),
        first_not_finite_step=int(series.steps[odd[0]]) if len(odd) else None,
    )


def step_range(record: RunRecord) -> tuple[int, int] | None:
    """Return the lowest and the highest step of a run; None where nothing was logged."""
    steps = [int(edge) for s in record.series.values() for edge in (s.steps.min(), s.steps.max())]
    steps += [text.step for texts in record.texts.values() for text in texts]
    return (min(steps), max(steps)) if steps else None


def duration(record: RunRecord) -> float:
    """Return the seconds from a run's start to its end, or to the last thing it wrote."""
    return max(0.0, record.ended - record.info.started)
