"""A curve in one line of characters."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

BLOCKS = "▁▂▃▄▅▆▇█"
ASCII_BLOCKS = "_.-=+*%#"
GAP = " "

Floats = np.ndarray[Any, np.dtype[np.float64]]


def spark(values: Floats, width: int, blocks: str = BLOCKS) -> str:
    """Draw values, in order, as one line of at most ``width`` characters.

    Where there are more values than characters, each character stands for the mean of equally
    many neighbours. Values that are not finite are left out; where nothing else is, there is a gap.

    Args:
        values: float64, shape (points,).
        width: Number of characters, 1 or more.
        blocks: The characters, lowest first.
    """
    levels = bin_means(values, min(width, len(values)))
    finite = np.isfinite(levels)
    if not finite.any():
        return GAP * len(levels)
    low, high = float(levels[finite].min()), float(levels[finite].max())
    # Halves, so that the distance of two very large values can't overflow.
    reach = high / 2 - low / 2
    if reach == 0:
        heights = np.full(len(levels), (len(blocks) - 1) // 2)
    else:
        share = (np.where(finite, levels, low) / 2 - low / 2) / reach
        heights = np.rint(share * (len(blocks) - 1)).astype(int)
    return "".join(
        blocks[height] if there else GAP for height, there in zip(heights, finite, strict=True)
    )


def bin_means(values: Floats, bins: int) -> Floats:
    """Return the means of the finite values in ``bins`` stretches; NaN where one has none."""
    edges = np.linspace(0, len(values), bins + 1).astype(int)
    means = np.full(bins, np.nan)
    for index, (start, stop) in enumerate(pairwise(edges)):
        part = values[start:stop]
        part = part[np.isfinite(part)]
        if len(part):
            means[index] = float((part / len(part)).sum())
    return means
