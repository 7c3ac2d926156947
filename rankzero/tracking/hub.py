"""The hub: what a user calls to start a run, to log, and to end it, on every rank alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rankzero.config.environment import find_setting
from rankzero.tracking import lifecycle, registry
from rankzero.tracking.early import EarlyCalls
from rankzero.tracking.handles import Inert, Tracker
from rankzero.tracking.notices import Notices
from rankzero.tracking.recorder import Recorder
from rankzero.tracking.run import RunInfo, new_launch_id, plan_run
from rankzero.tracking.start import open_recorder

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from typing_extensions import Self

DEFAULT_END_SECONDS = 30.0


class Hub:
    """Records runs on the main process; on other ranks it does nothing, at next to no cost.

    No method is a collective: each may be called on all ranks, or on the main process alone.

    Args:
        log_with: A tracker's name, a LoggerType, or a list of those; "all": every one that is
            installed; None or an empty list: nothing is recorded, and every call does nothing.
        logging_dir: Folder under which ``<project>/<run>`` is made; None: ``runs``.
        rank: Global rank of this process; 0 is the main process.
        world_size: Number of ranks.
        launch_id: What names the launch, the same on every rank, or a function that returns it;
            None: a new one.
        end_timeout: Seconds that the end of a run waits for its trackers; None: the environment's
            RANKZERO_TRACKING_END_TIMEOUT, else 30.

    Attributes:
        run: The current run, None before ``init_trackers`` and after ``end``.

    Raises:
        ValueError: a tracker's name that is not known.
    """

    def __init__(
        self,
        log_with: Any,
        logging_dir: str | os.PathLike[str] | None = None,
        rank: int = 0,
        world_size: int = 1,
        launch_id: str | Callable[[], str] | None = None,
        end_timeout: float | None = None,
    ) -> None:
        self.run: RunInfo | None = None
        self._names = registry.choose_trackers(log_with)
        self._asked = log_with is not None and (isinstance(log_with, str) or len(log_with) > 0)
        self._logging_dir = logging_dir
        self._is_main = rank == 0
        self._world_size = world_size
        self._launch_id = launch_id
        self._end_seconds = _end_seconds(end_timeout)
        self._recorder: Recorder | None = None
        self._trackers: dict[str, Any] = {}
        self._early = EarlyCalls()
        self._notices = Notices()
        self._ended: Recorder | None = None
        self._silent = not (self._asked and self._is_main)
        self._error_at_start: BaseException | None = None

    # Start

    def init_trackers(
        self, project_name: str, config: Any = None, init_kwargs: Mapping[str, Any] | None = None
    ) -> None:
        """Start a run in a new folder; returns at once, trackers start on their own.

        A run that is still open is ended first.

        Args:
            project_name: Names the folder, and the project in trackers that have projects.
            config: The run's settings: a mapping, dataclass, namespace or the like, of anything.
            init_kwargs: Options by tracker name.

        Raises:
            TypeError: ``project_name`` is not text, or ``init_kwargs`` not a dict of dicts.
            ValueError: an option or a tracker in ``init_kwargs`` that is not known.
        """
        if not self._asked:
            return
        if not isinstance(project_name, str) or not project_name:
            raise TypeError(
                f"init_trackers(project_name={project_name!r}): write a name, such as 'digits'."
            )
        options = self._check_kwargs("init_kwargs", init_kwargs)
        self.end()
        run = plan_run(project_name, self._logging_dir, self._find_launch_id(), self._world_size)
        if not self._is_main:
            self.run = run
            self._trackers = {name: Inert(name) for name in self._names}
            return
        self._notices = Notices()
        recorder = open_recorder(run, self._names, options, self._notices, self._end_seconds)
        if recorder is None:
            self.run = run
            self._trackers = {name: Inert(name) for name in self._names}
            self._silent = True
            return
        self._begin(recorder, config)

    def _begin(self, recorder: Recorder, config: Any) -> None:
        self.run = recorder.run
        self._error_at_start = sys.exc_info()[1]
        if config is not None:
            recorder.configure(config)
        self._early.replay(recorder)
        recorder.start()
        lifecycle.watch(recorder)
        self._trackers = {name: Tracker(recorder, c) for name, c in recorder.consumers.items()}
        self._silent = False
        self._recorder = recorder

    def _find_launch_id(self) -> str:
        if self._launch_id is None:
            self._launch_id = new_launch_id()
        return self._launch_id() if callable(self._launch_id) else self._launch_id

    def _check_kwargs(
        self, argument: str, given: Mapping[str, Any] | None
    ) -> dict[str, dict[str, Any]]:
        """Return the options of active trackers, all of them checked."""
        if given is None:
            return {}
        if not isinstance(given, Mapping):
            raise TypeError(
                f"{argument} must be a dict by tracker name, not {type(given).__name__}."
            )
        checked: dict[str, dict[str, Any]] = {}
        for key, options in given.items():
            name = registry.known_name(argument, key)
            if name not in self._names or options is None:
                continue
            adapter = registry.find_adapter(name)
            if argument == "init_kwargs":
                adapter.check_init_options(options)
            else:
                adapter.check_log_options(options)
            checked[name] = dict(options)
        return checked

    # Log

    def log(
        self,
        values: Mapping[str, Any],
        step: int | None = None,
        log_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        """Record values at a step. When it returns, numbers and text are safe on disk.

        Nested mappings are joined with ``/``. A value that is on a device is copied without
        waiting for it, and is on disk once the device has made it.

        Args:
            values: Name to value; see ``values.convert`` for what a value may be.
            step: A whole number; None: the last step that was given in this run, or, where none
                was given yet, 0, 1, 2 ... for one call after the other.
            log_kwargs: Options of this call by tracker name.

        Raises:
            TypeError: ``values`` is not a mapping, or ``step`` not a number.
            ValueError: an option or tracker in ``log_kwargs`` that is not known.
        """
        recorder = self._recorder
        if recorder is None:
            if not self._silent:
                self._log_outside_run(values, step, log_kwargs)
            return
        if log_kwargs is None and recorder.journal.write_numbers(values, step, time.time()):
            return
        _check_values(values)
        options = self._check_kwargs("log_kwargs", log_kwargs)
        recorder.log(values, step, options or None)

    def _log_outside_run(
        self, values: Mapping[str, Any], step: Any, log_kwargs: Mapping[str, Any] | None
    ) -> None:
        """Take a call that comes before ``init_trackers`` or after the end."""
        _check_values(values)
        options = self._check_kwargs("log_kwargs", log_kwargs) or None
        if self._ended is None:
            self._early.add(values, step, options, self._notices)
        else:
            self._ended.log(values, step, options)

    # Trackers

    @property
    def trackers(self) -> list[Any]:
        """The trackers of the current run; inert ones on other ranks."""
        return list(self._trackers.values())

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """Return a tracker of the current run, or with ``unwrap`` its library's own object.

        On other ranks it is an object whose every method does nothing.

        Raises:
            ValueError: no such tracker is active; names those that are.
        """
        by_name = {known.lower(): tracker for known, tracker in self._trackers.items()}
        found = by_name.get(str(name).lower())
        if found is None and not self._is_main:
            return Inert(str(name))
        if found is None:
            active = ", ".join(map(repr, self._trackers)) or "none"
            advice = "" if self._trackers else " Call init_trackers() first."
            raise ValueError(
                f"get_tracker(name={str(name)!r}): not active. Active: {active}.{advice}"
            )
        return found.tracker if unwrap and isinstance(found, Tracker) else found

    # End

    def end(self, status: str | None = None, error: str | None = None) -> None:
        """End the current run, if there is one; waits for the trackers, at most ``end_timeout``.

        Without a status it is "finished", or "failed" with the exception's text when called while
        an exception that came up during the run is being handled.
        """
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            self.run = None
            self._trackers = {}
            return
        handled = sys.exc_info()[1]
        if status is None and handled is not None and handled is not self._error_at_start:
            status, error = lifecycle.describe_exception(handled)
        recorder.finish(status or "finished", error)
        lifecycle.unwatch(recorder)
        self._ended = recorder
        self.run = None
        self._trackers = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.end("finished")
        else:
            self.end(*lifecycle.describe_exception(error))


def _check_values(values: Any) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"log(values={values!r}): write a dict of names and values, such as {{'loss': 0.5}}, not"
            f" {type(values).__name__}."
        )


def _end_seconds(given: float | None) -> float:
    if given is not None:
        return float(given)
    found = find_setting("TRACKING_END_TIMEOUT")
    if found is None:
        return DEFAULT_END_SECONDS
    try:
        return float(found[1])
    except ValueError:
        raise ValueError(f"{found[0]}={found[1]!r} is not a number of seconds.") from None
