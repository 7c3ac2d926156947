"""Opening and leaving the process group."""

from __future__ import annotations

import atexit
import ctypes
import os
import secrets
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.torch_version import TorchVersion

from rankzero.distributed.devices import DeviceRow
from rankzero.distributed.topology import Topology, read_topology

STORE_KEY = "rankzero/launch_id"
LAUNCH_ID_TIMEOUT = timedelta(minutes=5)

_opened_here = False


def environment() -> Mapping[str, str]:
    """Return the process's environment."""
    return os.environ


def open_topology() -> Topology | None:
    """Return the topology of a group that something else has opened; None where there is none."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    told = read_topology(os.environ)
    rank, world = dist.get_rank(), dist.get_world_size()
    if (told.rank, told.world_size) == (rank, world):
        return told
    return Topology(rank, world, rank, world, launcher="torch.distributed")


def open_group(
    topology: Topology, row: DeviceRow, device: torch.device, options: dict[str, Any]
) -> tuple[str | None, str]:
    """Open the group that the topology tells of, unless it is open.

    Args:
        topology: Ranks, and where rank 0 listens.
        row: The device type, which knows its backend.
        device: This process's device.
        options: ``backend``, ``init_method`` and ``timeout`` of ``init_process_group``.

    Returns:
        The backend (None for one process) and the launch id, the same on all ranks.
    """
    unknown = sorted(set(options) - {"backend", "init_method", "timeout"})
    if unknown:
        raise TypeError(f"{unknown[0]}: a process group takes backend, init_method and timeout.")
    if topology.world_size == 1:
        return None, new_launch_id()
    if not dist.is_initialized():
        _open(topology, row, device, options)
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001
    if topology.rank == 0:
        store.set(STORE_KEY, new_launch_id())
    store.wait([STORE_KEY], LAUNCH_ID_TIMEOUT)
    return dist.get_backend(), store.get(STORE_KEY).decode()


def _open(
    topology: Topology, row: DeviceRow, device: torch.device, options: dict[str, Any]
) -> None:
    """Call ``init_process_group`` and have the group destroyed at exit."""
    global _opened_here
    # "nccl" is the default of the settings object, not a wish: the row knows what fits.
    asked = options.get("backend")
    backend = row.collective_backend if asked in (None, "nccl") else asked
    keywords: dict[str, Any] = {"backend": backend}
    if options.get("timeout") is not None:
        keywords["timeout"] = options["timeout"]
    if options.get("init_method") is not None:
        keywords["init_method"] = options["init_method"]
        keywords.update(rank=topology.rank, world_size=topology.world_size)
    else:
        # env:// is how torchrun's own store is found; other launchers leave its variables open.
        os.environ.setdefault("MASTER_ADDR", str(topology.main_address))
        os.environ.setdefault("MASTER_PORT", str(topology.main_port))
        os.environ.setdefault("RANK", str(topology.rank))
        os.environ.setdefault("WORLD_SIZE", str(topology.world_size))
        os.environ.setdefault("LOCAL_RANK", str(topology.local_rank))
        os.environ.setdefault("LOCAL_WORLD_SIZE", str(topology.local_world_size))
    if device.type == "cuda":
        keywords["device_id"] = device
    dist.init_process_group(**keywords)
    _opened_here = True
    atexit.register(_destroy_at_exit)


def new_launch_id() -> str:
    """Return "YYYYMMDD-HHMMSS-xxxxxx": local time, and six random hexadecimal digits."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


def destroy(group: Any = None) -> None:
    """Leave the process group, or one group of it; nothing where there is none."""
    if dist.is_available() and dist.is_initialized():
        if torch.__version__ < TorchVersion("2.8"):
            _keep_groups_alive()
        dist.destroy_process_group(group)


def _keep_groups_alive() -> None:
    """See to it that no group's object is ever freed, for versions of torch where that can hang.

    Before 2.8 freeing one waits, with the interpreter locked, for threads of gloo that may be
    waiting for the interpreter to free a tensor (pytorch/pytorch#154976). The pause lets them.
    """
    for group in dist.distributed_c10d._world.pg_map:  # noqa: SLF001
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
    time.sleep(0.02)


def _destroy_at_exit() -> None:
    """Leave the group that was opened here.

    After an uncaught exception other ranks may be in the middle of a collective: the group is then
    aborted by the end of the process, which waits for nobody.
    """
    if _opened_here and getattr(sys, "last_value", None) is None:
        destroy()
