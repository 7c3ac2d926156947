"""TensorBoard: one event file in the run's folder, written by torch's own SummaryWriter."""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Any

from rankzero.tracking.adapter import Adapter, MissingPackage
from rankzero.tracking.configs import flat_config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rankzero.tracking.tail import Entry


class TensorBoardAdapter(Adapter):
    """Writes scalars, text and hyperparameters of a run into one event file.

    The calls of the loop become one event each. TensorBoard keeps scalars as float32; the journal
    keeps them exactly. The configuration is both a text summary and the run's hyperparameters.

    ``init_kwargs["tensorboard"]`` are arguments of SummaryWriter; ``log_kwargs["tensorboard"]``
    those of its ``add_scalar``.
    """

    name = "tensorboard"
    package = "tensorboard"
    install = "tensorboard"
    requires_logging_directory = True
    init_options = ("purge_step", "max_queue", "flush_secs", "filename_suffix", "comment")
    log_options = ("walltime", "new_style", "double_precision")

    def __init__(self, run: Any, options: Mapping[str, Any]) -> None:
        super().__init__(run, options)
        self._writer: Any = None
        self._protos: Any = None

    def open(self) -> None:
        """Import torch.utils.tensorboard (seconds) and open the event file."""
        if self._writer is not None:
            return
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            if not self.is_installed() or error.name in ("torch", "tensorboard"):
                raise MissingPackage(str(error)) from error
            raise
        from tensorboard.compat.proto import event_pb2, summary_pb2

        options = {"max_queue": 1000, "flush_secs": 30, **self.options}
        self._protos = (event_pb2.Event, summary_pb2.Summary)
        self._writer = SummaryWriter(log_dir=str(self.run.folder), **options)

    @property
    def native(self) -> Any:
        """The SummaryWriter; None before it is open."""
        return self._writer

    @classmethod
    def conveniences(cls) -> Mapping[str, str]:
        """Return ``writer``, the name that scripts know."""
        return {"writer": ""}

    def configure(self, config: Mapping[str, Any]) -> None:
        """Write the configuration as hyperparameters and as a text summary named ``config``."""
        from tensorboard.plugins.hparams.plugin_data_pb2 import SessionStartInfo

        start = SessionStartInfo(group_name=self.run.id, start_time_secs=self.run.started)
        for name, value in flat_config(config).items():
            _set_hparam(start.hparams[_clean(name)], value)
        self._add_session("session_start_info", start)
        text = json.dumps(config, indent=2, ensure_ascii=False, default=str)
        indented = "\n".join(f"    {line}" for line in _clean(text).splitlines())
        self._writer.add_text("config", indented, 0, self.run.started)

    def write(self, entries: Sequence[Entry]) -> None:
        """Write one event a call."""
        event_class, summary_class = self._protos
        add = self._writer.file_writer.event_writer.add_event
        for entry in entries:
            if entry.options is not None or any(type(value) is str for value in entry.values):
                self._write_singly(entry)
                continue
            values = [
                summary_class.Value(tag=_clean(key), simple_value=_number(value))
                for key, value in zip(entry.keys, entry.values, strict=True)
                if value is not None
            ]
            if values:
                summary = summary_class(value=values)
                add(event_class(wall_time=entry.time, step=entry.step, summary=summary))

    def _write_singly(self, entry: Entry) -> None:
        """Write a call that has text in it, or options of its own."""
        options = {"walltime": entry.time, **(entry.options or {})}
        for key, value in zip(entry.keys, entry.values, strict=True):
            tag = _clean(key)
            if isinstance(value, str):
                self._writer.add_text(tag, _clean(value), entry.step, options["walltime"])
            elif value is not None:
                self._writer.add_scalar(tag, _number(value), entry.step, **options)

    def flush(self) -> None:
        """Bring the events to the file."""
        self._writer.flush()

    def close(self, status: str, error: str | None) -> None:
        """Write how the run ended, and close the file."""
        from tensorboard.plugins.hparams import api_pb2
        from tensorboard.plugins.hparams.plugin_data_pb2 import SessionEndInfo

        with contextlib.suppress(Exception):  # the script may have closed its writer itself
            result = api_pb2.STATUS_SUCCESS if status == "finished" else api_pb2.STATUS_FAILURE
            self._add_session(
                "session_end_info", SessionEndInfo(status=result, end_time_secs=time.time())
            )
            if status != "finished":
                self._writer.add_text("status", _clean(f"{status}: {error}"), 0)
        self._writer.close()

    def _add_session(self, field: str, message: Any) -> None:
        """Write a record of the hyperparameter plugin.

        An experiment record, which torch's ``add_hparams`` adds, is left out: with it the plugin
        shows only the metrics that were named beforehand; without it, all scalars of the run.
        """
        from tensorboard.plugins.hparams import metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        value = self._protos[1].Value(
            tag=f"_hparams_/{field}",
            tensor=metadata.NULL_TENSOR,
            metadata=metadata.create_summary_metadata(HParamsPluginData(**{field: message})),
        )
        self._writer.file_writer.add_summary(self._protos[1](value=[value]), 0)

    def log_images(self, values: Mapping[str, Any], step: int | None, **kwargs: Any) -> None:
        """Draw each batch of images, named by its key, with SummaryWriter.add_images."""
        for key, images in values.items():
            self._writer.add_images(key, images, global_step=step, **kwargs)


def _number(value: float | bool | str) -> float:
    """Return the value as a float; an int too large for one becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if not isinstance(value, str) and value > 0 else float("-inf")


def _set_hparam(slot: Any, value: bool | float | str) -> None:
    """Set a protobuf value; numbers that its JSON can't hold become text."""
    if isinstance(value, bool):
        slot.bool_value = value
    elif isinstance(value, (int, float)) and math.isfinite(_number(value)):
        slot.number_value = float(value)
    else:
        slot.string_value = _clean(str(value))


def _clean(text: str) -> str:
    """Return ``text`` without the lone surrogates that protobuf refuses."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
