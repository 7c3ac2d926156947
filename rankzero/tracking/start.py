"""Opening a run on the main process, wherever the disk allows it."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankzero.tracking import registry
from rankzero.tracking.recorder import Recorder
from rankzero.tracking.run import RunInfo, folder_name, make_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rankzero.tracking.notices import Notices


def open_recorder(
    run: RunInfo,
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    notices: Notices,
    end_seconds: float,
) -> Recorder | None:
    """Make the run's folder and journal; return its recorder.

    Where the folder can't be made, the run goes to a temporary folder, with a warning that names
    it; where that can't be made either, None is returned and nothing is recorded, with a warning.
    """
    try:
        return _open(make_folder(run), names, options, notices, end_seconds)
    except OSError as error:
        refusal = error
    try:
        base = Path(tempfile.mkdtemp(prefix="rankzero-"))
        elsewhere = replace(run, folder=base / folder_name(run.project) / run.id)
        recorder = _open(make_folder(elsewhere), names, options, notices, end_seconds)
    except OSError as error:
        notices.warn_once(
            "folder",
            f"No run can be recorded: {run.folder} ({refusal}) and {tempfile.gettempdir()} ({error}).",
        )
        return None
    notices.warn_once(
        "folder",
        f"The run's folder {run.folder} can't be made ({refusal}): recording in {recorder.run.folder}.",
    )
    return recorder


def _open(
    run: RunInfo,
    names: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    notices: Notices,
    end_seconds: float,
) -> Recorder:
    stamped = run.stamped(list(names))
    adapters = [registry.find_adapter(name)(stamped, options.get(name, {})) for name in names]
    return Recorder(stamped, adapters, notices, end_seconds)
