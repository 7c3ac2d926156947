"""What ``rankzero launch`` can be told, each setting defined once.

A field of ``LaunchOptions`` carries its help, how its text is read and the environment setting that
takes it to the script; flags, their help and ``rankzero env`` derive from that.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rankzero.cli.parser import CommandError, Parser
from rankzero.config.enums import PrecisionType

AVAILABLE_PRECISIONS = (PrecisionType.NO, PrecisionType.FP16, PrecisionType.BF16)


def positive_int(flag: str, text: str) -> int:
    """Return the whole number from 1 up that ``text`` spells."""
    number = _whole_number(flag, text, "1 or more")
    if number < 1:
        raise ValueError(f"{flag}={text} is too small: write 1 or more.")
    return number


def port(flag: str, text: str) -> int:
    """Return the port number that ``text`` spells, 0 standing for any free one."""
    number = _whole_number(flag, text, "a port from 1 to 65535, or 0 for a free one")
    if not 0 <= number <= 65535:
        raise ValueError(f"{flag}={text} is no port: write 1 to 65535, or 0 for a free one.")
    return number


def _whole_number(flag: str, text: str, wanted: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{flag}={text!r} is not a whole number: write {wanted}.") from None


def precision(flag: str, text: str) -> str:
    """Return the precision that ``text`` names."""
    choice = PrecisionType.parse(flag, text)
    if choice not in AVAILABLE_PRECISIONS:
        names = ", ".join(str(name) for name in AVAILABLE_PRECISIONS)
        raise ValueError(f"{flag}={text} is not available yet; write one of {names}.")
    return str(choice)


def _option(
    help: str,  # noqa: A002 - the word argparse uses for it
    read: Callable[[str, str], Any] | None = None,
    *,
    metavar: str = "N",
    environment: str | None = None,
    short: str | None = None,
    group: str = "general",
) -> Any:
    described = {
        "help": help,
        "read": read,
        "metavar": metavar,
        "environment": environment,
        "short": short,
        "group": group,
    }
    return dataclasses.field(default=False if read is None else None, metadata=described)


@dataclass
class LaunchOptions:
    """The flags of ``rankzero launch``; None is "not said", so that a weaker source may decide."""

    module: bool = _option("run SCRIPT as a module, like python -m", short="-m")
    cpu: bool = _option(
        "train on the CPU even where accelerators are found",
        environment="USE_CPU",
        group="processes",
    )
    num_processes: int | None = _option(
        "processes to start (default: one an accelerator, 1 without any)",
        positive_int,
        group="processes",
    )
    main_process_port: int | None = _option(
        "port on 127.0.0.1 where the processes meet (default: a free one)",
        port,
        metavar="PORT",
        group="processes",
    )
    mixed_precision: str | None = _option(
        "precision of forward and backward: no, fp16 or bf16",
        precision,
        metavar="NAME",
        environment="MIXED_PRECISION",
        group="training",
    )
    gradient_accumulation_steps: int | None = _option(
        "batches to accumulate gradients over before an optimizer step",
        positive_int,
        environment="GRADIENT_ACCUMULATION_STEPS",
        group="training",
    )

    def environment(self) -> dict[str, str]:
        """Return the variables that carry what was said to the script, and nothing else."""
        variables = {}
        for field in dataclasses.fields(self):
            name, value = field.metadata["environment"], getattr(self, field.name)
            if name is not None and value not in (None, False):
                variables[f"RANKZERO_{name}"] = "1" if value is True else str(value)
        return variables


def add_flags(parser: Parser) -> None:
    """Register one flag a field of ``LaunchOptions``, in its group, as text to be read later."""
    groups: dict[str, Any] = {}
    for field in dataclasses.fields(LaunchOptions):
        about = field.metadata
        title = str(about["group"])
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        names = [about["short"]] if about["short"] else []
        names.append(f"--{field.name}")
        if about["read"] is None:
            groups[title].add_argument(*names, action="store_true", help=about["help"])
        else:
            groups[title].add_argument(*names, metavar=about["metavar"], help=about["help"])


def read_options(texts: dict[str, Any], problems: list[str]) -> LaunchOptions:
    """Turn the flags' texts into options, adding a line to ``problems`` for each bad one."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(LaunchOptions):
        text, read = texts.get(field.name), field.metadata["read"]
        if read is None or text is None:
            values[field.name] = text or field.default
            continue
        try:
            values[field.name] = read(f"--{field.name}", text)
        except ValueError as error:
            problems.append(str(error))
    return LaunchOptions(**values)


def option_of_setting(name: str) -> dataclasses.Field[Any] | None:
    """Return the option that the environment setting ``name`` carries to the script, if any."""
    fields = dataclasses.fields(LaunchOptions)
    return next((field for field in fields if field.metadata["environment"] == name), None)


def raise_problems(problems: list[str]) -> None:
    """Raise all ``problems`` at once, where there are any.

    Raises:
        CommandError: one line a problem.
    """
    if problems:
        raise CommandError("\n  ".join(problems))
