"""Runs on a terminal: 80 columns will do, colour is a help and never the only sign."""

from __future__ import annotations

import math
import os
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text as Line

from rankzero.review.curves import ASCII_BLOCKS, BLOCKS, spark
from rankzero.review.summary import MetricSummary, duration, step_range, summarize
from rankzero.tracking.configs import flat_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rankzero.tracking.reader import RunRecord

STATUS_STYLES = {
    "finished": "green",
    "running": "cyan",
    "failed": "bold red",
    "killed": "bold red",
    "crashed": "bold red",
}
CONFIG_ENTRIES = 12
TEXT_LETTERS = 200
LONGEST_NAME = 28
SMALLEST_CURVE, LARGEST_CURVE = 8, 60


def print_review(records: Sequence[RunRecord], root: Path, console: Console) -> None:
    """Print runs: a table of them if they are several, then the newest in full.

    Args:
        records: The runs, newest last; one at least.
        root: Where the user pointed; TensorBoard is to be opened on it.
        console: Where to print.
    """
    if len(records) > 1:
        console.print(table_of_runs(records), "")
    console.print(run_in_full(records[-1], console))
    command = tensorboard_command(records, root)
    if command:
        console.print(Line("open in TensorBoard:", style="dim"))
        console.print(Line(f"  {command}"), soft_wrap=True)


def table_of_runs(records: Sequence[RunRecord]) -> Table:
    """Return the table of several runs."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("project", "run", "status", "duration"):
        table.add_column(name, overflow="fold", no_wrap=name in ("status", "duration"))
    table.add_column("last step", justify="right")
    table.add_column("metrics", justify="right")
    for record in records:
        steps = step_range(record)
        table.add_row(
            Line(record.info.project),
            Line(record.info.id),
            status_line(record),
            format_duration(duration(record)),
            "-" if steps is None else str(steps[1]),
            str(len(record.series)),
        )
    return table


def run_in_full(record: RunRecord, console: Console) -> Group:
    """Return everything that is shown of one run."""
    summaries = [summarize(name, series) for name, series in record.series.items()]
    parts: list[RenderableType] = [heading(record), facts(record), ""]
    if summaries:
        parts.append(metric_table(record, summaries, console))
    else:
        parts.append(Line("no metric was logged", style="dim"))
    parts += ["", *text_lines(record)]
    parts += [Line(f"! {remark}", style="yellow") for remark in remarks(record, summaries)]
    return Group(*parts)


def heading(record: RunRecord) -> Line:
    """Return the run's name and status."""
    return Line.assemble(
        (record.info.project, "bold"), "  ", record.info.id, "  ", status_line(record)
    )


def status_line(record: RunRecord) -> Line:
    """Return the status as a word, coloured where there is colour."""
    return Line(record.status, style=STATUS_STYLES.get(record.status, ""))


def facts(record: RunRecord) -> Table:
    """Return when, how long, on what and with which settings the run went."""
    info = record.info
    steps = step_range(record)
    started = "at an unknown time"
    if info.started:
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info.started))
    processes = f"{info.world_size} process{'es' * (info.world_size != 1)}"
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("started", Line(f"{started}, {processes} on {info.host or 'an unknown host'}"))
    grid.add_row("duration", format_duration(duration(record)))
    if steps is not None:
        grid.add_row("steps", f"{steps[0]} to {steps[1]}, {record.calls} calls of log")
    if info.trackers:
        grid.add_row("trackers", Line(", ".join(info.trackers)))
    if record.config:
        grid.add_row("config", config_in_brief(record))
    grid.add_row("folder", Line(str(shown_path(info.folder))))
    if record.error:
        grid.add_row("error", Line(record.error, style="red"))
    return grid


def config_in_brief(record: RunRecord) -> Line:
    """Return the first settings, and how many there are besides."""
    flat = flat_config(record.config)
    shown = [f"{name}={shortened(str(value), 40)}" for name, value in flat.items()]
    more = len(shown) - CONFIG_ENTRIES
    if more > 0:
        shown = [*shown[:CONFIG_ENTRIES], f"and {more} more in config.yaml"]
    return Line(", ".join(shown))


def metric_table(record: RunRecord, summaries: list[MetricSummary], console: Console) -> Table:
    """Return one row a metric: final, best and where, number of points, curve."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    headings = ("metric", "final", "best @step", "points")
    for name in headings:
        table.add_column(name, justify="left" if name == "metric" else "right", overflow="fold")
    table.add_column("curve", no_wrap=True)
    rows = [metric_row(summary) for summary in summaries]
    # The curve takes what the other columns leave of the line. A long name is folded.
    taken = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    left = console.width - min(taken[0], LONGEST_NAME) - sum(taken[1:]) - 2 * len(headings)
    width = max(SMALLEST_CURVE, min(LARGEST_CURVE, left))
    blocks = ASCII_BLOCKS if console.options.ascii_only else BLOCKS
    for summary, row in zip(summaries, rows, strict=True):
        curve = spark(record.series[summary.name].values, width, blocks)
        table.add_row(*map(Line, row), Line(curve, style="cyan"))
    return table


def metric_row(summary: MetricSummary) -> tuple[str, str, str, str]:
    """Return the row's text, without the curve.

    A metric whose name doesn't tell which way is better has its range instead of its best value.
    """
    low, high = format_value(summary.lowest), format_value(summary.highest)
    if summary.best is None:
        best = low if low == high else f"{low}..{high}"
    else:
        best = f"{format_value(summary.best)} @{summary.best_step}"
    return summary.name, format_value(summary.final), best, str(summary.points)


def text_lines(record: RunRecord) -> list[RenderableType]:
    """Return the last piece of each text, shortened."""
    lines: list[RenderableType] = []
    for name, texts in record.texts.items():
        last = texts[-1]
        content = shortened(" ".join(last.text.split()), TEXT_LETTERS)
        lines.append(
            Line.assemble((f"{name} (step {last.step}, {len(texts)} in all): ", "dim"), content)
        )
    return lines


def remarks(record: RunRecord, summaries: list[MetricSummary]) -> list[str]:
    """Return what one would want to be told."""
    said = [
        f"{summary.name}: {summary.not_finite} of {summary.points} values are NaN or infinite, "
        f"the first at step {summary.first_not_finite_step}"
        for summary in summaries
        if summary.not_finite
    ]
    if not record.info.started:
        said.append("the journal does not tell how the run began: it is empty, or damaged")
    elif record.status == "crashed":
        said.append("no end was recorded and the process is gone; what the disk took is here")
    if record.skipped:
        said.append(f"{record.skipped} damaged stretches of the journal were passed over")
    return said


def tensorboard_command(records: Sequence[RunRecord], root: Path) -> str | None:
    """Return what opens TensorBoard on the runs; None where none of them has event files."""
    if not any(has_events(record) for record in records):
        return None
    folder = records[0].info.folder if len(records) == 1 else root
    return f"tensorboard --logdir {shlex.quote(str(shown_path(folder)))}"


def has_events(record: RunRecord) -> bool:
    """Tell whether a run's folder holds TensorBoard's event files."""
    return any("tfevents" in path.name for path in record.info.folder.iterdir())


def shown_path(path: Path) -> Path:
    """Return the path as one would type it here: relative if it is below the working directory."""
    here, full = Path.cwd(), Path(os.path.abspath(path))  # noqa: PTH100 - links stay links
    return full.relative_to(here) if full.is_relative_to(here) else full


def shortened(text: str, letters: int) -> str:
    """Return the text, with its end left out where it is longer than ``letters``."""
    return text if len(text) <= letters else f"{text[: letters - 3]}..."


def format_value(value: float) -> str:
    """Return a value in at most eleven characters, five digits of it."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e7:
        return str(int(value))
    return f"{value:.5g}"


def format_duration(seconds: float) -> str:
    """Return seconds as people say them: 12.3 s, 4 min 05 s, 3 h 02 min, 2 d 04 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    if hours < 1:
        return f"{minutes} min {whole % 60:02d} s"
    if hours < 24:
        return f"{hours} h {minutes % 60:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"
