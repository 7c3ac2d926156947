"""Trackers by name. To add one: write its adapter, and add a row here."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rankzero.config.choices import unknown_choice
from rankzero.config.enums import LoggerType

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rankzero.tracking.adapter import Adapter

ADAPTERS: dict[str, str] = {
    "tensorboard": "rankzero.adapters.tensorboard:TensorBoardAdapter",
}

logger = logging.getLogger("rankzero.tracking")


def find_adapter(name: str) -> type[Adapter]:
    """Return the adapter class of a registered tracker; imports the adapter, not its library."""
    module, _, attribute = ADAPTERS[name].partition(":")
    found: type[Adapter] = getattr(import_module(module), attribute)
    return found


def available_trackers() -> list[str]:
    """Return the names of the registered trackers whose library is installed."""
    return [name for name in ADAPTERS if find_adapter(name).is_installed()]


def check_name(argument: str, value: object) -> str:
    """Return the registered name that ``value`` stands for, in any letter case.

    Raises:
        ValueError: no such tracker, or none in this version; names the known ones, nearest first.
    """
    text = str(value)
    for name in ADAPTERS:
        if text.lower() == name.lower():
            return name
    known = [*ADAPTERS, "all"]
    if text.lower() in LoggerType.list() and text.lower() != "all":
        listed = ", ".join(repr(name) for name in known)
        raise ValueError(
            f"{argument}={text!r}: this version of rankzero has no adapter for {text} yet. It has: {listed}."
        )
    raise unknown_choice(argument, text, known)


def known_name(argument: str, value: object) -> str:
    """Return the name of a tracker that is registered, or that other versions have.

    Raises:
        ValueError: no tracker of that name is known anywhere.
    """
    text = str(value)
    for name in (*ADAPTERS, *LoggerType.list()):
        if text.lower() == name.lower():
            return name
    raise unknown_choice(argument, text, list(ADAPTERS))


def choose_trackers(log_with: Any) -> list[str]:
    """Return the names that ``log_with`` asks for, each once, in order.

    Args:
        log_with: None, a name, a LoggerType, or a list of those; "all" is every installed one.

    Raises:
        ValueError: a name that is not known.
        TypeError: something that is not a name.
    """
    if log_with is None:
        return []
    wanted = log_with if isinstance(log_with, (list, tuple, set, frozenset)) else [log_with]
    names: list[str] = []
    for item in wanted:
        if not isinstance(item, str):
            raise TypeError(
                f"log_with={item!r} is not the name of a tracker. Write one of: "
                f"{', '.join(repr(name) for name in [*ADAPTERS, 'all'])}."
            )
        names.extend(_all() if item.lower() == "all" else [check_name("log_with", item)])
    return list(dict.fromkeys(names))


def _all() -> Iterable[str]:
    active = available_trackers()
    missing = [name for name in ADAPTERS if name not in active]
    said = f'log_with="all": active: {", ".join(active) or "none"}'
    if missing:
        installs = "; ".join(
            f"{name}: pip install {find_adapter(name).install}" for name in missing
        )
        said += f"; not installed: {installs}"
    if active:
        logger.info(said)
    else:
        logger.warning("%s. Calls are recorded in the run's journal.", said)
    return active
