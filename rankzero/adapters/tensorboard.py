"""TensorBoard: one event file in the run's folder, written by torch's own SummaryWriter."""

from __future__ import annotations

import contextlib
import json
import math
import textwrap
import time
from numbers import Real
from typing import TYPE_CHECKING, Any

from rankzero.tracking.adapter import Adapter, MissingPackage
from rankzero.tracking.configs import flat_config

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rankzero.tracking.tail import Entry


_FILE_OPTIONS = ("max_queue", "flush_secs", "filename_suffix")


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
        self._file: Any = None
        self._unflushed: list[Callable[[], None]] = []

    @classmethod
    def check_init_options(cls, options: Mapping[str, Any]) -> None:
        """Raise for an option that SummaryWriter does not know, or for a number that is none."""
        super().check_init_options(options)
        for name in ("max_queue", "flush_secs", "purge_step"):
            value = options.get(name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise TypeError(f"init_kwargs['tensorboard'][{name!r}]={value!r} is not a number.")

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
        self.options = {"max_queue": 1000, "flush_secs": 30, **self.options}
        self._writer = SummaryWriter(log_dir=str(self.run.folder), **self.options)
        self._file = self._writer.file_writer

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
        self._deliver(lambda: self._add_config(config))

    def write(self, entries: Sequence[Entry]) -> None:
        """Write one event a call."""
        self._deliver(lambda: self._add_entries(entries))

    def flush(self) -> None:
        """Bring the events to the file."""
        if self._unflushed:
            self._deliver(lambda: self._events().flush())
            self._unflushed.clear()

    def close(self, status: str, error: str | None) -> None:
        """Write how the run ended, and close the file."""
        if self._writer.file_writer is not None:  # the script has not closed its writer itself
            self._deliver(lambda: self._add_end(status, error))
            self._deliver(self._close_file)

    def _close_file(self) -> None:
        file = self._events()
        self._writer.close()
        file.close()  # where a closing by the script came in between

    def _deliver(self, action: Callable[[], None]) -> None:
        """Do ``action``; it is done once more where its event file turns out not to take it.

        The thread that writes an event file ends with the first error of the disk, and takes with
        it what was not flushed yet. A file that the script has closed was flushed by that.
        """
        try:
            action()
        except OSError as error:
            self._file = None
            if error.errno is not None:  # the system's; what is closed is told without a number
                raise
            self._unflushed.clear()
            action()
        self._unflushed.append(action)

    def _events(self) -> Any:
        """Return the writer of the event file: a new one, and what it lacks, where one was lost."""
        if self._file is None:
            from torch.utils.tensorboard import FileWriter

            for path in self.run.folder.glob("events.out.tfevents.*"):
                with contextlib.suppress(OSError):
                    if path.stat().st_size == 0:  # of a try before this one
                        path.unlink()
            options = {name: self.options[name] for name in _FILE_OPTIONS if name in self.options}
            self._file = FileWriter(str(self.run.folder), **options)
            self._writer.file_writer = self._file
            self._writer.all_writers = {self._file.get_logdir(): self._file}
            for action in self._unflushed:
                action()
        return self._file

    def _add_config(self, config: Mapping[str, Any]) -> None:
        from tensorboard.plugins.hparams.plugin_data_pb2 import SessionStartInfo

        start = SessionStartInfo(group_name=self.run.id, start_time_secs=self.run.started)
        for name, value in flat_config(config).items():
            _set_hparam(start.hparams[_clean(name)], value)
        self._add_session("session_start_info", start)
        shown = json.dumps(config, indent=2, ensure_ascii=False, default=str)
        self._add_text("config", textwrap.indent(shown, "    "), 0, self.run.started)

    def _add_entries(self, entries: Sequence[Entry]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        add = self._events().event_writer.add_event
        for entry in entries:
            if entry.options is not None or any(type(value) is str for value in entry.values):
                self._add_singly(entry)
                continue
            values = [
                Summary.Value(tag=_clean(key), simple_value=_number(value))
                for key, value in zip(entry.keys, entry.values, strict=True)
                if value is not None
            ]
            if values:
                add(Event(wall_time=entry.time, step=entry.step, summary=Summary(value=values)))

    def _add_singly(self, entry: Entry) -> None:
        """Write a call that has text in it, or options of its own."""
        from torch.utils.tensorboard.summary import scalar

        options = dict(entry.options or {})
        time = options.pop("walltime", entry.time)
        for key, value in zip(entry.keys, entry.values, strict=True):
            if isinstance(value, str):
                self._add_text(_clean(key), value, entry.step, time)
            elif value is not None:
                summary = scalar(_clean(key), _number(value), **options)
                self._events().add_summary(summary, entry.step, time)

    def _add_text(self, tag: str, content: str, step: int, time: float | None = None) -> None:
        from torch.utils.tensorboard.summary import text

        self._events().add_summary(text(tag, _clean(content)), step, time)

    def _add_end(self, status: str, error: str | None) -> None:
        from tensorboard.plugins.hparams import api_pb2
        from tensorboard.plugins.hparams.plugin_data_pb2 import SessionEndInfo

        result = api_pb2.STATUS_SUCCESS if status == "finished" else api_pb2.STATUS_FAILURE
        end = SessionEndInfo(status=result, end_time_secs=time.time())
        self._add_session("session_end_info", end)
        if status != "finished":
            self._add_text("status", f"{status}: {error}", 0)

    def _add_session(self, field: str, message: Any) -> None:
        """Write a record of the hyperparameter plugin.

        An experiment record, which torch's ``add_hparams`` adds, is left out: with it the plugin
        shows only the metrics that were named beforehand; without it, all scalars of the run.
        """
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.hparams import metadata
        from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

        value = Summary.Value(
            tag=f"_hparams_/{field}",
            tensor=metadata.NULL_TENSOR,
            metadata=metadata.create_summary_metadata(HParamsPluginData(**{field: message})),
        )
        self._events().add_summary(Summary(value=[value]), 0)

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
