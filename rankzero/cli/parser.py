"""An argument parser whose long flags are spelled with underscores or dashes, as one likes."""

from __future__ import annotations

import argparse
import difflib
from typing import Any, NoReturn


class CommandError(Exception):
    """A command cannot go on; the message is the line that the user reads.

    Args:
        message: what is wrong and what to write instead.
        code: the exit status of the process; 2 is a mistake on the command line.
    """

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that takes ``--some-flag`` for ``--some_flag`` and never abbreviates.

    Flags are registered with underscores. A mistake raises ``CommandError``; an unknown flag is
    answered with the nearest known one.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("allow_abbrev", False)
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(**options)

    def spelled(self, argument: str) -> str:
        """Return ``argument`` with a known long flag in it spelled as it was registered."""
        if not argument.startswith("--"):
            return argument
        name, equals, value = argument.partition("=")
        known = "--" + name[2:].replace("-", "_")
        return known + equals + value if known in self._option_string_actions else argument

    def takes_value(self, argument: str) -> bool:
        """Tell whether the known flag ``argument`` is followed by a value in the next argument."""
        action = self._option_string_actions.get(self.spelled(argument))
        return action is not None and action.nargs != 0

    def knows(self, argument: str) -> bool:
        """Tell whether ``argument`` is a flag of this parser, with or without ``=value``."""
        return self.spelled(argument).partition("=")[0] in self._option_string_actions

    def unknown_flag(self, argument: str) -> CommandError:
        """Build the error for a flag that is not among this parser's, nearest flag named."""
        name = argument.partition("=")[0]
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        close = difflib.get_close_matches(
            name.replace("-", "_"), [f.replace("-", "_") for f in flags], 1
        )
        nearest = next((f for f in flags if close and f.replace("-", "_") == close[0]), None)
        hint = f" Did you mean {nearest}?" if nearest else ""
        return CommandError(f"{name} is not a flag of {self.prog}.{hint} See {self.prog} --help.")

    # The signature is argparse's, whose overloads say nothing more to a reader.
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse with every known long flag brought into its registered spelling."""
        return super().parse_known_args(
            [self.spelled(argument) for argument in args or ()], namespace
        )

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse ``args``, naming the nearest flag where one is unknown."""
        parsed, rest = self.parse_known_args(args, namespace)
        if rest:
            flag = next((item for item in rest if item.startswith("-")), None)
            if flag is not None:
                raise self.unknown_flag(flag)
            raise CommandError(
                f"{rest[0]!r} is one argument too many for {self.prog}. See {self.prog} --help."
            )
        return parsed

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found as a ``CommandError``."""
        raise CommandError(f"{message[0].upper()}{message[1:]}. See {self.prog} --help.")


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Flags in one column and their help in a second one that starts at the same place."""

    def __init__(self, prog: str, **options: Any) -> None:
        options.setdefault("max_help_position", 36)
        super().__init__(prog, **options)
