"""``rankzero review PATH``: what runs logged, on the terminal, without a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rankzero.cli.parser import CommandError, Parser

if TYPE_CHECKING:
    from rankzero.tracking.reader import RunRecord


def run(arguments: list[str]) -> int:
    """Print the runs at or under a path; return 0."""
    parser = Parser(
        prog="rankzero review",
        description=(
            "Show what a run logged: the final and the best value of each metric, a small curve,\n"
            "its configuration, and the command that opens TensorBoard on it. With several runs\n"
            "under PATH: a table of them, then the newest. Runs that are still going, or were\n"
            "killed, show what they have logged so far."
        ),
    )
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        default=Path("runs"),
        metavar="PATH",
        help="a run's folder, its journal, or a folder of runs (default: runs)",
    )
    path: Path = parser.parse_args(arguments).path
    folders = runs_at(path)

    from rich.console import Console

    from rankzero.review.terminal import print_review

    # A metric may be named in letters that the terminal's encoding lacks.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    records = [record for record in map(read_or_say, folders) if record is not None]
    if not records:
        raise CommandError(f"no run at {str(path)!r} can be read.", 1)
    records.sort(key=lambda record: record.info.started)  # folders may have been renamed
    console = Console(highlight=False)
    with console.capture() as captured:  # printed by us, since rich exits where a reader went away
        print_review(records, path, console)
    print(captured.get(), end="")
    return 0


def read_or_say(folder: Path) -> RunRecord | None:
    """Return a run; None, having said why, where its journal can't be read."""
    from rankzero.tracking.reader import read_run

    try:
        return read_run(folder)
    except OSError as error:
        print(f"rankzero review: the run {str(folder)!r} can't be read: {error}", file=sys.stderr)
        return None


def runs_at(path: Path) -> list[Path]:
    """Return the folders of the runs at a path.

    Raises:
        CommandError: there is no such path, or no run there.
    """
    from rankzero.tracking.reader import find_runs

    if not path.exists():
        raise CommandError(
            f"{str(path)!r} does not exist: give a run's folder, or a folder of runs."
        )
    folders = find_runs(path)
    if not folders:
        raise CommandError(
            f"there is no run at {str(path)!r}: a run's folder holds a file journal.rz. Runs are made "
            "where project_dir or logging_dir says, else under 'runs'."
        )
    return folders
