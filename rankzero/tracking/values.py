"""What a logged value becomes: a float, an int, a bool, text, nothing, or a number still to come.

No tensor library is imported here: a tensor can only come from one that is loaded already, and is
known by its type's module.
"""

from __future__ import annotations

import datetime as dt
import enum
import numbers
import os
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from rankzero.tracking.deferred import Deferred, snapshot

if TYPE_CHECKING:
    from rankzero.tracking.notices import Notices

Plain = float | int | bool | str | None
LONGEST_TEXT = 1_000_000
DEEPEST = 50


class Values(NamedTuple):
    """One call's values, flattened: ``keys[i]`` has ``values[i]``."""

    keys: tuple[str, ...]
    values: tuple[Plain | Deferred, ...]


def flatten(values: Mapping[Any, Any], notices: Notices) -> Values:
    """Return the values of one ``log`` call with nested mappings joined by ``/``.

    A key that is not text becomes text, and a value that no tracker draws becomes its text; each
    is warned about once. Never raises on a value.
    """
    keys: list[str] = []
    found: list[Plain | Deferred] = []
    _flatten_into("", values, keys, found, notices, above=(id(values),))
    return Values(tuple(keys), tuple(found))


def _flatten_into(
    prefix: str,
    values: Mapping[Any, Any],
    keys: list[str],
    found: list[Plain | Deferred],
    notices: Notices,
    above: tuple[int, ...],
) -> None:
    for key, value in values.items():
        name = prefix + _key_text(key, notices)
        inner = _items(value) if id(value) not in above and len(above) < DEEPEST else None
        if inner is None:
            keys.append(name)
            found.append(convert(name, value, notices))
        else:
            _flatten_into(f"{name}/", inner, keys, found, notices, (*above, id(value)))


def _items(value: Any) -> Mapping[Any, Any] | None:
    """Return the items of a mapping; None where it is none, or does not let itself be read."""
    try:
        return dict(value.items()) if isinstance(value, Mapping) else None
    except Exception:  # noqa: BLE001 - whatever a foreign object raises, training goes on
        return None


def _key_text(key: Any, notices: Notices) -> str:
    if isinstance(key, str):
        return str(key.value) if isinstance(key, enum.Enum) else str(key)
    text = describe(key)
    notices.warn_once(
        f"key {text}",
        f"log(values): the key {text} is {type(key).__name__}, not text; it is kept as {text!r}.",
    )
    return text


def convert(name: str, value: Any, notices: Notices) -> Plain | Deferred:
    """Return the plain form of one value; ``name`` is its key, for the warning."""
    if value is None or type(value) in (float, int, bool, str):
        return value  # type: ignore[no-any-return]
    try:
        known, plain = _convert_known(value)
    except Exception:  # noqa: BLE001 - whatever a foreign object raises, training goes on
        known, plain = False, None
    if known:
        return plain
    text = describe(value)
    notices.warn_once(
        f"value {name}",
        f"log(values): {name!r} is {type(value).__module__}.{type(value).__qualname__}, which is not one"
        f" number; it is kept as text.",
    )
    return text


def _convert_known(value: Any) -> tuple[bool, Plain | Deferred]:
    """Return ``(True, plain form)``, or ``(False, None)`` for what has none."""
    if isinstance(value, enum.Enum):
        inner = value.value
        return (True, inner) if type(inner) in (float, int, bool, str) else (True, value.name)
    if isinstance(value, str):
        return True, str(value)
    if isinstance(value, (Decimal, Fraction, float)):
        return True, float(value)
    if isinstance(value, int):
        return True, int(value)
    if isinstance(value, (dt.date, dt.time)):
        return True, value.isoformat()
    if isinstance(value, dt.timedelta):
        return True, value.total_seconds()
    if isinstance(value, os.PathLike):
        return True, os.fspath(value) if isinstance(os.fspath(value), str) else str(value)
    if is_tensor(value):
        return _convert_tensor(value)
    if hasattr(value, "dtype") and hasattr(value, "item"):
        return _convert_array(value)
    if isinstance(value, numbers.Integral):
        return True, int(value)
    if hasattr(type(value), "__float__") and not hasattr(type(value), "__len__"):
        return True, float(value)
    return False, None


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a torch tensor, or of a class derived from it."""
    return any(
        base.__module__ == "torch" and base.__name__ == "Tensor" for base in type(value).__mro__
    )


def _convert_tensor(tensor: Any) -> tuple[bool, Plain | Deferred]:
    if tensor.numel() != 1 or tensor.is_complex() or tensor.device.type == "meta":
        return False, None
    if tensor.device.type != "cpu":
        return True, snapshot(tensor)
    return True, tensor.item()


def _convert_array(value: Any) -> tuple[bool, Plain | Deferred]:
    """Convert a scalar or an array of numpy, or of a library that follows its interface."""
    if getattr(value, "size", None) != 1:
        return False, None
    kind = getattr(value.dtype, "kind", "f")
    if kind in "Mm":
        return True, str(value if getattr(value, "ndim", 0) == 0 else value.reshape(())[()])
    item = value.item()
    if type(item) in (float, int, bool, str):
        return True, item
    return (True, float(item)) if kind == "f" else (False, None)


def describe(value: Any) -> str:
    """Return ``value`` as text; never raises, and never waits for a device."""
    try:
        if is_tensor(value) and (value.device.type != "cpu" or value.numel() > 1000):
            return f"tensor(shape={tuple(value.shape)}, dtype={value.dtype}, device={value.device})"
        text = repr(value)
    except Exception:  # noqa: BLE001 - a repr may raise anything
        text = f"<{type(value).__name__}>"
    return text if len(text) <= LONGEST_TEXT else text[:LONGEST_TEXT] + "..."
