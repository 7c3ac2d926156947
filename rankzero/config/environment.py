"""Reading settings from environment variables.

A setting ``X`` is read from ``RANKZERO_X``; where that is unset or empty, ``ACCELERATE_X`` of the
same meaning is honoured. Every reader takes the mapping as a parameter, so that it can be tested
without touching the process.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

TRUE_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
FALSE_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})


def find_setting(name: str, environ: Mapping[str, str] | None = None) -> tuple[str, str] | None:
    """Return ``(variable, value)`` for setting ``name``, or None where it is unset or empty."""
    environ = os.environ if environ is None else environ
    for variable in (f"RANKZERO_{name}", f"ACCELERATE_{name}"):
        value = environ.get(variable, "").strip()
        if value:
            return variable, value
    return None


def read_text(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the setting's text, or None where it is unset."""
    found = find_setting(name, environ)
    return None if found is None else found[1]


def parse_bool(argument: str, text: str) -> bool:
    """Return the truth value that ``text`` spells.

    Raises:
        ValueError: names ``argument`` and the words that are understood.
    """
    word = text.strip().lower()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError(
        f"{argument}={text!r} is not a yes or no: write one of 1, true, yes, on, 0, false, no, off."
    )


def read_bool(name: str, environ: Mapping[str, str] | None = None, default: bool = False) -> bool:
    """Return the setting as a truth value, ``default`` where it is unset."""
    found = find_setting(name, environ)
    return default if found is None else parse_bool(*found)


def read_int(name: str, environ: Mapping[str, str] | None = None) -> int | None:
    """Return the setting as a whole number, or None where it is unset.

    Raises:
        ValueError: names the variable and its value.
    """
    found = find_setting(name, environ)
    if found is None:
        return None
    try:
        return int(found[1])
    except ValueError:
        raise ValueError(f"{found[0]}={found[1]!r} is not a whole number.") from None
