"""Calls of ``log`` that come before ``init_trackers``: kept, and recorded once the run starts."""

from __future__ import annotations

import atexit
import os
import time
from typing import TYPE_CHECKING, Any

from rankzero.tracking.notices import Notices, logger
from rankzero.tracking.recorder import whole_step
from rankzero.tracking.values import Values, flatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rankzero.tracking.recorder import Recorder

MOST_CALLS = 10_000


class EarlyCalls:
    """Holds up to ``MOST_CALLS`` calls of ``log`` in memory, with the time of each."""

    def __init__(self) -> None:
        self._calls: list[tuple[Values, int | None, Mapping[str, Any] | None, float]] = []
        self._dropped = 0
        self._pid = 0

    def add(
        self,
        values: Mapping[str, Any],
        step: Any,
        options: Mapping[str, Any] | None,
        notices: Notices,
    ) -> None:
        """Keep one call, its values as they are now; a warning with the first.

        Raises:
            TypeError: ``step`` is not a whole number.
            ValueError: ``step`` is beyond 64 bits.
        """
        whole = None if step is None else whole_step(step, notices)
        if not self._pid:
            self._pid = os.getpid()
            atexit.register(self._say_lost)
        notices.warn_once(
            "early",
            "log() was called before init_trackers(): the values are kept in memory until it is called."
            " Call init_trackers(project_name) before the loop.",
        )
        if len(self._calls) >= MOST_CALLS:
            self._dropped += 1
            return
        self._calls.append((flatten(values, notices), whole, options, time.time()))

    def replay(self, recorder: Recorder) -> None:
        """Record the calls in a run that has started now."""
        calls, self._calls = self._calls, []
        for flat, step, options, when in calls:
            recorder.record(flat, step, options, None, when)
        if self._dropped:
            logger.warning(
                "%d calls of log() before init_trackers() were more than the %d that are kept, and are lost.",
                self._dropped,
                MOST_CALLS,
            )
            self._dropped = 0

    def _say_lost(self) -> None:
        if self._calls and os.getpid() == self._pid:
            logger.warning(
                "%d calls of log() were not recorded, as init_trackers() was never called.",
                len(self._calls),
            )
