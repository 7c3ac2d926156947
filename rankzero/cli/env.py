"""``rankzero env``: what a bug report needs, as plain text that can be pasted."""

from __future__ import annotations

import logging
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from typing import Any

import rankzero
from rankzero.cli.options import option_of_setting
from rankzero.cli.parser import Parser
from rankzero.config.environment import find_setting, parse_bool

Rows = list[tuple[str, str]]

SETTINGS: Mapping[str, str] = {
    "USE_CPU": "no",
    "MIXED_PRECISION": "no",
    "GRADIENT_ACCUMULATION_STEPS": "1",
    "TORCH_DEVICE": "the first device found",
    "DEBUG_MODE": "no",
    "LOG_LEVEL": "unset",
    "TRACKING_END_TIMEOUT": "30",
}
"""Settings that a script reads from its environment, and what holds where they are unset."""

_PACKAGES = ("numpy", "tensorboard", "safetensors", "rich", "psutil", "PyYAML")
_SURROUNDINGS = (
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME",
    "SLURM_JOB_ID", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
)  # fmt: skip


def run(arguments: list[str]) -> int:
    """Print the report; return 0."""
    parser = Parser(
        prog="rankzero env",
        description="Show versions, devices, effective settings and where each came from.",
    )
    parser.parse_args(arguments)
    print(report(os.environ))
    return 0


def report(environ: Mapping[str, str]) -> str:
    """Return the whole report."""
    sections: dict[str, Rows] = {
        "versions": versions(),
        "machine": machine(),
        "devices": devices(),
        "settings": settings(environ),
        "trackers": trackers(),
    }
    around = surroundings(environ)
    if around:
        sections["set around it"] = around
    width = max(len(name) for rows in sections.values() for name, _ in rows)
    blocks = [
        "\n".join([title, *(f"  {name:<{width}}  {value}" for name, value in rows)])
        for title, rows in sections.items()
    ]
    return "\n\n".join(blocks)


def versions() -> Rows:
    """Return the versions of rankzero, Python and the packages it stands on."""
    import torch

    rows = [
        ("rankzero", rankzero.__version__),
        ("python", f"{platform.python_version()} ({platform.python_implementation()})"),
        ("torch", torch.__version__),  # which names its build, as the package's metadata may not
    ]
    return rows + [(package, installed_version(package)) for package in _PACKAGES]


def installed_version(package: str) -> str:
    """Return a package's version from its metadata, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def machine() -> Rows:
    """Return the platform, the cores and the memory."""
    import psutil

    memory = psutil.virtual_memory()
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return [
        ("platform", platform.platform()),
        ("python path", sys.executable),
        ("cores", f"{os.cpu_count()} ({usable} usable by this process)"),
        (
            "memory",
            f"{memory.total / 2**30:.1f} GiB ({memory.available / 2**30:.1f} GiB available)",
        ),
    ]


def devices() -> Rows:
    """Return the devices found, with what torch was built for."""
    import torch

    from rankzero.distributed.devices import DEVICES

    built = torch.version.cuda and f"CUDA {torch.version.cuda}"
    built = built or (torch.version.hip and f"ROCm {torch.version.hip}")
    rows = [("torch built for", built or "CPU")]
    described = [(row.name, describe_device(row)) for row in DEVICES]
    return rows + [(name, text) for name, text in described if text]


def describe_device(row: Any) -> str:
    """Return how many devices of a row there are, which, and what autocast takes; "" for none."""
    try:
        if not row.is_available():
            return ""
    except Exception as error:  # noqa: BLE001 - a broken driver is what the report is for
        return f"could not be asked: {type(error).__name__}: {error}"
    dtypes = ", ".join(str(dtype).removeprefix("torch.") for dtype in row.autocast_dtypes)
    name_of = getattr(row.module, "get_device_name", None)
    names = [str(name_of(index)) for index in range(row.count())] if name_of and row.indexed else []
    kinds = "; ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    return f"{kinds or row.count()}, autocast: {dtypes}"


def settings(environ: Mapping[str, str]) -> Rows:
    """Return each setting's effective value and its source, and variables that nothing reads."""
    rows = []
    for name, default in SETTINGS.items():
        found = find_setting(name, environ)
        if found is None:
            rows.append((name.lower(), f"{default}  (default)"))
        else:
            rows.append((name.lower(), f"{found[1]}  (from {found[0]}){problem(name, *found)}"))
    read = {f"{prefix}_{name}" for prefix in ("RANKZERO", "ACCELERATE") for name in SETTINGS}
    # Names alone: what another tool keeps there may be a secret.
    others = sorted(
        v for v in environ if v.startswith(("RANKZERO_", "ACCELERATE_")) and v not in read
    )
    return rows + [("also set", ", ".join(others))] * bool(others)


def problem(name: str, variable: str, text: str) -> str:
    """Return a remark on a setting's value that will be refused, or nothing."""
    option = option_of_setting(name)
    read = _READERS.get(name) if option is None else option.metadata["read"] or parse_bool
    try:
        if read is not None:
            read(variable, text)
    except ValueError as error:
        return f"  <- {error}"
    return ""


def _device(variable: str, text: str) -> None:
    from rankzero.distributed.devices import row_named

    if not row_named(text, argument=variable).is_available():
        raise ValueError(f"{variable}={text!r}, but this machine shows no such device.")


def _level(variable: str, text: str) -> None:
    if not isinstance(logging.getLevelName(text.upper()), int):
        names = "DEBUG, INFO, WARNING, ERROR, CRITICAL"
        raise ValueError(f"{variable}={text!r} is not a level: write one of {names}.")


def _seconds(variable: str, text: str) -> None:
    try:
        float(text)
    except ValueError:
        raise ValueError(f"{variable}={text!r} is not a number of seconds.") from None


_READERS: Mapping[str, Callable[[str, str], object]] = {
    "TORCH_DEVICE": _device,
    "DEBUG_MODE": parse_bool,
    "LOG_LEVEL": _level,
    "TRACKING_END_TIMEOUT": _seconds,
}
"""How a setting's text is read where no option of launch says it."""


def trackers() -> Rows:
    """Return which trackers can be used, and how to install each that is missing."""
    from rankzero.tracking.registry import ADAPTERS, find_adapter

    rows = []
    for name in ADAPTERS:
        adapter = find_adapter(name)
        there = adapter.is_installed()
        rows.append((name, "available" if there else f"missing: pip install {adapter.install}"))
    return rows


def surroundings(environ: Mapping[str, str], names: Iterable[str] = _SURROUNDINGS) -> Rows:
    """Return the variables of launchers and of other libraries that are set."""
    return [(name, environ[name]) for name in names if environ.get(name)]
