"""A run's identity and its folder."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

DEFAULT_FOLDER = "runs"
JOURNAL_NAME = "journal.rz"
CONFIG_NAME = "config.yaml"
CURSOR_FOLDER = "cursors"


@dataclass(frozen=True)
class RunInfo:
    """What identifies a run; the same on every rank.

    Attributes:
        id: Unique name of the run: the launch id, with ``-2``, ``-3`` for later runs of a launch.
        name: What trackers show; the id.
        project: The project as the user named it.
        folder: Where the run's files are.
        started: Unix seconds, on the main process.
        world_size: Number of ranks.
        host: Machine of the main process.
        pid: Process id of the main process.
        command: Command line of the main process.
        trackers: Names of the trackers that the run is delivered to.
        versions: Of Python, rankzero, and torch where it was loaded.
    """

    id: str
    name: str
    project: str
    folder: Path
    started: float = 0.0
    world_size: int = 1
    host: str = ""
    pid: int = 0
    command: list[str] = field(default_factory=list)
    trackers: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def to_record(self) -> dict[str, Any]:
        """Return the fields as the journal keeps them: all but the folder, which may be moved."""
        record = asdict(self)
        del record["folder"]
        return record

    @classmethod
    def from_record(cls, record: dict[str, Any], folder: Path) -> RunInfo:
        """Return the run that a journal in ``folder`` tells of; unknown fields are left out."""
        known = {f.name for f in fields(cls)} - {"folder"}
        found = {name: value for name, value in record.items() if name in known}
        missing = {"id": folder.name, "name": folder.name, "project": folder.parent.name}
        return cls(folder=folder, **{**missing, **found})

    def stamped(self, trackers: list[str]) -> RunInfo:
        """Return the run with the facts of this process, which is its main process."""
        versions = {"python": sys.version.split()[0]}
        for package in ("rankzero", "torch"):
            version = getattr(sys.modules.get(package), "__version__", None)
            if version is not None:
                versions[package] = str(version)
        return replace(
            self,
            started=time.time(),
            host=socket.gethostname(),
            pid=os.getpid(),
            command=list(sys.argv),
            trackers=trackers,
            versions=versions,
        )


def new_launch_id() -> str:
    """Return ``YYYYMMDD-HHMMSS-xxxxxx``: sorts by time, unique also among runs of one second."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(3)}"


_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')


def folder_name(project: str) -> str:
    """Return the folder name of a project: its name, with what a path cannot hold replaced."""
    name = _FORBIDDEN.sub("_", project).strip(" .")
    while len(name.encode("utf-8", "replace")) > 200:
        name = name[:-1]
    return name.encode("utf-8", "replace").decode() or "project"


_runs_of_launch: dict[str, int] = {}


def next_run_id(launch_id: str) -> str:
    """Return the id of this process's next run in the launch; counted alike on every rank."""
    count = _runs_of_launch.get(launch_id, 0) + 1
    _runs_of_launch[launch_id] = count
    return launch_id if count == 1 else f"{launch_id}-{count}"


def plan_run(
    project: str, logging_dir: str | os.PathLike[str] | None, launch_id: str, world_size: int
) -> RunInfo:
    """Return the run that ``init_trackers`` starts now; makes no folder."""
    run_id = next_run_id(launch_id)
    base = Path(DEFAULT_FOLDER if logging_dir is None else logging_dir)
    folder = base.absolute() / folder_name(project) / run_id
    return RunInfo(id=run_id, name=run_id, project=project, folder=folder, world_size=world_size)


def make_folder(run: RunInfo) -> RunInfo:
    """Make the run's folder, never one that is there already; return the run with its folder.

    Raises:
        OSError: the folder can't be made.
    """
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, 1000):
        name = run.id if attempt == 1 else f"{run.id}.{attempt}"
        folder = run.folder.with_name(name)
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return replace(run, id=name, name=name, folder=folder)
    raise FileExistsError(f"{run.folder} and a thousand names like it are there already")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.write_bytes(data)
    temporary.replace(path)
