"""A run's configuration in plain data: what YAML and JSON hold, whatever it was made of."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import os
import re
import types
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from fractions import Fraction
from typing import Any

from rankzero.tracking.values import describe, is_tensor

DEEPEST = 40
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def plain_config(config: Any) -> dict[str, Any]:
    """Return ``config`` as nested dicts and lists of None, bool, int, float and str.

    Mappings (OmegaConf's too), dataclasses, namespaces and objects with ``model_dump`` or
    ``to_dict`` become dicts; sets and tuples become lists; paths, types, devices and whatever else
    become text; a cycle is cut with a note. The original is not changed. Never raises.
    """
    if config is None:
        return {}
    plain = _plain(config, ())
    return plain if isinstance(plain, dict) else {"config": plain}


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    if id(value) in above:
        return f"<cycle: {type(value).__name__}>"
    if len(above) >= DEEPEST:
        return _text(value)
    try:
        return _plain_object(value, (*above, id(value)))
    except Exception:  # noqa: BLE001 - whatever a foreign object raises, training goes on
        return _text(value)


def _plain_object(value: Any, above: tuple[int, ...]) -> Any:
    scalar = _plain_scalar(value)
    if scalar is not None:
        return scalar
    if is_tensor(value) or hasattr(value, "dtype"):
        return _plain_array(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value, above)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: _plain(getattr(value, f.name, None), above) for f in dataclasses.fields(value)
        }
    if isinstance(value, AbstractSet):
        return sorted(
            (_plain(item, above) for item in value), key=lambda item: (str(type(item)), str(item))
        )
    if isinstance(value, Sequence) and not isinstance(value, range):
        return [_plain(item, above) for item in value]
    if isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        return f"{value.__module__}.{value.__qualname__}"
    return _plain_by_method(value, above)


def _plain_scalar(value: Any) -> Any:
    """Return the plain form of what is one number or one text, else None."""
    if isinstance(value, enum.Enum):
        return value.value if type(value.value) in (bool, int, float, str) else value.name
    if isinstance(value, str):
        return str(value).encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (bytes, bytearray)):
        return _text(bytes(value))
    if isinstance(value, (Decimal, Fraction, float)):
        return float(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, os.PathLike):
        return os.fsdecode(os.fspath(value))
    return None


def _plain_mapping(value: Mapping[Any, Any], above: tuple[int, ...]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key in value:
        name = _plain_scalar(key)
        name = _text(key) if name is None else str(name)
        while name in plain:
            name += "_"
        try:
            item = value[key]
        except Exception as error:  # noqa: BLE001 - an interpolation that does not resolve
            item = f"<{type(error).__name__}>"
        plain[name] = _plain(item, above)
    return plain


def _plain_array(value: Any) -> Any:
    count = value.numel() if is_tensor(value) else getattr(value, "size", 1)
    on_device = is_tensor(value) and value.device.type != "cpu"
    if on_device or not isinstance(count, int) or count > 1000:
        return _text(value)
    listed = value.tolist()
    return _plain(listed, ()) if isinstance(listed, (list, bool, int, float, str)) else str(listed)


def _plain_by_method(value: Any, above: tuple[int, ...]) -> Any:
    for method in ("model_dump", "to_dict", "_asdict"):
        dump: Callable[[], Any] | None = getattr(value, method, None)
        if callable(dump):
            dumped = dump()
            if isinstance(dumped, Mapping):
                return _plain_mapping(dumped, above)
    if isinstance(value, types.SimpleNamespace) or any(
        base.__name__ == "Namespace" for base in type(value).__mro__
    ):
        return _plain_mapping(vars(value), above)
    # torch.dtype, torch.device and their like print as what one writes to make them
    plain = getattr(type(value), "__str__", None) is object.__str__
    return _text(value) if plain else _without_address(str(value))


def _without_address(text: str) -> str:
    return _ADDRESS.sub("", text).encode("utf-8", "backslashreplace").decode()


def _text(value: Any) -> str:
    return _without_address(describe(value))


def flat_config(plain: Mapping[str, Any], prefix: str = "") -> dict[str, bool | int | float | str]:
    """Return a plain configuration as ``section/name -> value`` for trackers that want it flat.

    Numbers and truth values stay what they are; lists and empty sections become JSON text, None
    becomes "None".
    """
    flat: dict[str, bool | int | float | str] = {}
    for key, value in plain.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and value:
            flat.update(flat_config(value, f"{name}/"))
        elif isinstance(value, (bool, int, float, str)):
            flat[name] = value
        else:
            flat[name] = "None" if value is None else json.dumps(value, ensure_ascii=False)
    return flat


def to_yaml(plain: Mapping[str, Any]) -> bytes:
    """Return a plain configuration as YAML that ``yaml.safe_load`` reads back equal."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(
        dict(plain), Dumper=dumper, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return text.encode("utf-8")
