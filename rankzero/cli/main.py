"""``rankzero COMMAND``: finds the command and hands it its arguments.

Only the command that was asked for is imported, and torch only where it is needed, so that help
comes at once.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import rankzero
from rankzero.cli.parser import CommandError


@dataclass(frozen=True)
class Command:
    """One row of the table of commands.

    Attributes:
        name: what is typed after ``rankzero``.
        help: one line.
        module: where its ``run(arguments: list[str]) -> int`` lives; the result is the exit status.
    """

    name: str
    help: str
    module: str


COMMANDS = (
    Command("launch", "run a training script on 1 to N processes", "rankzero.cli.launch"),
    Command(
        "review", "show what a run logged: values, curves, configuration", "rankzero.cli.review"
    ),
    Command(
        "env", "show versions, devices and effective settings, for bug reports", "rankzero.cli.env"
    ),
)


FLAGS = ("--help", "--version")


def help_text() -> str:
    """Return what ``rankzero --help`` prints."""
    width = max(len(command.name) for command in COMMANDS)
    rows = "\n".join(f"  {command.name:<{width}}  {command.help}" for command in COMMANDS)
    return (
        "usage: rankzero [-h] [--version] COMMAND ...\n\n"
        "Your PyTorch loop on any number of processes, and every number it logs, kept.\n\n"
        f"commands:\n{rows}\n\n"
        "rankzero COMMAND --help shows a command's own flags."
    )


def find_command(name: str) -> Command:
    """Return the command called ``name``.

    Raises:
        CommandError: names the known commands, or flags, nearest first.
    """
    commands = {command.name: command for command in COMMANDS}
    if name in commands:
        return commands[name]
    kind, known = ("flag", FLAGS) if name.startswith("-") else ("command", tuple(commands))
    close = difflib.get_close_matches(name.lower(), known, n=len(known), cutoff=0.5)
    names = ", ".join([*close, *(other for other in known if other not in close)])
    hint = f" Did you mean {close[0]}?" if close else ""
    raise CommandError(
        f"{name!r} is not a {kind} of rankzero.{hint} {kind.capitalize()}s: {names}."
    )


def dispatch(arguments: Sequence[str]) -> int:
    """Run what stands after ``rankzero`` on the command line; return the exit status."""
    if not arguments:
        print(help_text(), file=sys.stderr)
        return 2
    if arguments[0] in ("-h", "--help", "help"):
        print(help_text())
        return 0
    if arguments[0] == "--version":
        print(f"rankzero {rankzero.__version__}")
        return 0
    command = find_command(arguments[0])
    module = importlib.import_module(command.module)
    return cast(int, module.run(list(arguments[1:])))


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``rankzero`` with ``argv`` (default: the process's arguments); return the exit status.

    A mistake is one line on standard error; interruption and a reader that went away (``| head``)
    end quietly with the shell's customary status.
    """
    arguments = sys.argv[1:] if argv is None else list(argv)
    open_missing_streams()
    try:
        try:
            return dispatch(arguments)
        finally:
            sys.stdout.flush()  # here, where a reader that went away is answered for
    except CommandError as error:
        named = arguments[0] if arguments and arguments[0] in {c.name for c in COMMANDS} else None
        print(f"rankzero{f' {named}' if named else ''}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        print("rankzero: interrupted.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Otherwise the interpreter's own flush at exit would raise the same error once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def open_missing_streams() -> None:
    """Give a process that was started without output streams (``>&-``) ones that go nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
