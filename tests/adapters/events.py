"""TensorBoard's event files, read by TensorBoard's own reader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData


def event_files(folder: Path) -> list[Path]:
    """Return all event files under ``folder``."""
    return sorted(folder.rglob("events.out.tfevents.*"))


def load(folder: Path) -> Any:
    """Return what the one event file under ``folder`` holds, all of it."""
    (path,) = event_files(folder)
    return load_file(path)


def load_file(path: Path) -> Any:
    """Return what one event file holds, all of it."""
    accumulator = EventAccumulator(
        str(path), size_guidance={"scalars": 0, "tensors": 0, "images": 0}
    )
    accumulator.Reload()
    return accumulator


def texts(events: Any, tag: str) -> list[tuple[int, str]]:
    """Return ``(step, text)`` of a text summary."""
    return [
        (event.step, event.tensor_proto.string_val[0].decode())
        for event in events.Tensors(f"{tag}/text_summary")
    ]


def hparams(events: Any, field: str) -> Any:
    """Return a record of the hyperparameter plugin, such as ``session_start_info``."""
    content = events.summary_metadata[f"_hparams_/{field}"].plugin_data.content
    return getattr(HParamsPluginData.FromString(content), field)


def settings(events: Any) -> dict[str, Any]:
    """Return the run's hyperparameters."""
    return {
        name: getattr(value, value.WhichOneof("kind"))
        for name, value in hparams(events, "session_start_info").hparams.items()
    }
