"""``rankzero.tracking.init``: the facade in a plain script, without ``Accelerator``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from rankzero.tracking.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Mapping


def init(
    project_name: str,
    log_with: Any = "tensorboard",
    config: Any = None,
    logging_dir: str | os.PathLike[str] | None = None,
    init_kwargs: Mapping[str, Any] | None = None,
) -> Hub:
    """Start a run and return its hub: ``hub.log({...}, step=...)``, ``hub.end()``.

    May be called on every rank; only rank 0 records. The rank is that of ``PartialState`` where
    there is one, else what the launcher's variables say. Also usable as a context manager, which
    ends the run, as failed if an exception leaves it.

    Args:
        project_name: Names the folder, and the project in trackers that have projects.
        log_with: A tracker's name, or a list of them; None: nothing is recorded.
        config: The run's settings.
        logging_dir: Folder under which ``<project>/<run>`` is made; None: ``runs``.
        init_kwargs: Options by tracker name.

    Raises:
        ValueError: a tracker or an option that is not known.
    """
    rank, world_size, launch_id = _place()
    hub = Hub(
        log_with, logging_dir=logging_dir, rank=rank, world_size=world_size, launch_id=launch_id
    )
    hub.init_trackers(project_name, config=config, init_kwargs=init_kwargs)
    return hub


def _place() -> tuple[int, int, str | None]:
    """Return ``(rank, world size, launch id)`` without opening a process group."""
    state = sys.modules.get("rankzero.distributed.state")
    if state is not None and state.is_initialized():
        partial = state.PartialState()
        return partial.process_index, partial.num_processes, partial.launch_id
    from rankzero.distributed.topology import read_topology

    topology = read_topology(os.environ)
    return topology.rank, topology.world_size, None
