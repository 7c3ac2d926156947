"""One way of turning down a value that is not among those that are known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


def nearest_first(value: object, known: Iterable[object]) -> list[str]:
    """Return ``known`` as text, those spelled most like ``value`` first."""
    names = [str(name) for name in known]
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(value).lower(), lowered, n=len(names), cutoff=0.5)
    first = [lowered[name] for name in close]
    return first + [name for name in names if name not in first]


def unknown_choice(argument: str, value: object, known: Sequence[object]) -> ValueError:
    """Build the error for ``argument=value`` where ``value`` is none of ``known``.

    The message names the argument, the value, and every known name, nearest first.
    """
    names = nearest_first(value, known)
    close = difflib.get_close_matches(
        str(value).lower(), [n.lower() for n in names], n=1, cutoff=0.5
    )
    hint = f" Did you mean {names[0]!r}?" if close else ""
    listed = ", ".join(repr(name) for name in names)
    return ValueError(f"{argument}={value!r} is not known.{hint} Known: {listed}.")
