"""One run being recorded: its journal, the trackers that follow it, and its end."""

from __future__ import annotations

import collections
import operator
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from rankzero.tracking import frames
from rankzero.tracking.configs import plain_config, to_yaml
from rankzero.tracking.deferred import Deferred
from rankzero.tracking.delivery import Consumer
from rankzero.tracking.journal import JournalWriter
from rankzero.tracking.notices import Notices, logger
from rankzero.tracking.run import CONFIG_NAME, JOURNAL_NAME, RunInfo, write_atomically
from rankzero.tracking.values import Values, flatten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rankzero.tracking.adapter import Adapter

SETTLE_SECONDS = 0.002
FULL_DISK_SECONDS = 2.0


class Recorder:
    """Records a run on the main process. Of all methods, only ``finish`` waits for anything.

    Args:
        run: The run; its folder exists.
        adapters: One for each tracker.
        notices: The run's warnings.
        end_seconds: How long ``finish`` waits for the trackers unless told otherwise.

    Attributes:
        journal: The journal's writer.
        consumers: One for each tracker, by name.
        notices: The run's warnings.
    """

    def __init__(
        self, run: RunInfo, adapters: Sequence[Adapter], notices: Notices, end_seconds: float
    ) -> None:
        self.run = run
        self.pid = os.getpid()
        self.journal = JournalWriter(run.folder / JOURNAL_NAME, notices)
        self.consumers = {adapter.name: Consumer(adapter, notices) for adapter in adapters}
        self._outcome: tuple[str, str | None, int | None] = ("finished", None, None)
        self.end_seconds = end_seconds
        self.notices = notices
        self._ended = False
        self._awaited: collections.deque[tuple[Any, ...]] = collections.deque()
        self._settler: threading.Thread | None = None
        self._settler_lock = threading.Lock()
        self.journal.write_json(frames.START, run.to_record())

    def start(self) -> None:
        """Start delivery to the trackers; returns at once."""
        for consumer in self.consumers.values():
            consumer.start()

    def configure(self, config: Any) -> None:
        """Record the configuration, and write it as YAML beside the journal."""
        plain = plain_config(config)
        self.journal.write_json(frames.CONFIG, plain)
        try:
            write_atomically(self.run.folder / CONFIG_NAME, to_yaml(plain))
        except Exception as error:  # noqa: BLE001 - the journal has it all the same
            self.notices.warn_once(
                "config", f"config: {CONFIG_NAME} could not be written ({error!r})."
            )

    def log(
        self,
        values: Mapping[Any, Any],
        step: Any,
        options: Mapping[str, Any] | None = None,
        only: str | None = None,
    ) -> None:
        """Record one call of any values.

        Raises:
            TypeError: ``step`` is not a whole number.
            ValueError: ``step`` is beyond 64 bits.
        """
        now = time.time()
        whole = None if step is None else whole_step(step, self.notices)
        self.record(flatten(values, self.notices), whole, options, only, now)

    def record(
        self,
        flat: Values,
        step: int | None,
        options: Mapping[str, Any] | None,
        only: str | None,
        now: float,
    ) -> None:
        """Record one call whose values are plain already, or on their way from a device."""
        settled, given = self.journal.settle_step(step)
        if any(isinstance(value, Deferred) for value in flat.values):
            self._await(flat, settled, given, now, options, only)
        elif flat.keys:
            self.journal.write_call(flat.keys, flat.values, settled, given, now, options, only)

    def _await(self, *call: Any) -> None:
        """Leave a call whose numbers are still on a device to the settling thread."""
        self._awaited.append(call)
        with self._settler_lock:
            if self._settler is None or not self._settler.is_alive():
                self._settler = threading.Thread(
                    target=self._settle, name="rankzero-settle", daemon=True
                )
                self._settler.start()

    def _settle(self) -> None:
        """Write the calls that were waiting for a device, in order, as their numbers arrive."""
        idle_until = time.monotonic() + 5.0
        while True:
            if not self._awaited:
                with self._settler_lock:
                    if not self._awaited and (self._ended or time.monotonic() > idle_until):
                        self._settler = None
                        return
                time.sleep(SETTLE_SECONDS)
                continue
            idle_until = time.monotonic() + 5.0
            if _all_ready(self._awaited[0][0]):
                self._write_settled(*self._awaited[0])
                self._awaited.popleft()
            else:
                time.sleep(SETTLE_SECONDS)

    def _write_settled(self, flat: Values, *rest: Any) -> None:
        values: list[Any] = []
        for value in flat.values:
            try:
                values.append(value.read() if isinstance(value, Deferred) else value)
            except Exception as error:  # noqa: BLE001, PERF203 - the device's error, one value's loss
                values.append(f"<{type(error).__name__}: {error}>")
                self.notices.warn_once(
                    "device", f"log(values): a tensor could not be read: {error!r}."
                )
        self.journal.write_call(flat.keys, tuple(values), *rest)

    def expect(self, status: str, error: str | None, unless_more: bool = False) -> None:
        """Note how the run ends where nobody says otherwise; a kill stays a kill.

        Args:
            status: As for ``finish``.
            error: As for ``finish``.
            unless_more: Forget it if more is logged, as after a SystemExit that somebody caught.
        """
        if self._outcome[0] != "killed":
            self._outcome = (status, error, self.journal.calls if unless_more else None)

    def _expected(self) -> tuple[str, str | None]:
        status, error, calls = self._outcome
        return (status, error) if calls in (None, self.journal.calls) else ("finished", None)

    def finish(
        self,
        status: str | None = None,
        error: str | None = None,
        seconds: float | None = None,
    ) -> None:
        """End the run: record its status, wait for the trackers, say what is undelivered.

        Only the first call does anything, and only in the process that started the run.

        Args:
            status: "finished", "failed" or "killed"; None: what is expected.
            error: The exception's text.
            seconds: How long to wait for the trackers, all together; None: ``end_seconds``.
        """
        if self._ended or os.getpid() != self.pid:
            return
        self._ended = True
        if status is None or (status == "failed" and self._outcome[0] == "killed"):
            status, error = self._expected()
        deadline = time.monotonic() + (self.end_seconds if seconds is None else seconds)
        self._wait_settled(deadline)
        self.journal.write_json(
            frames.END,
            {"status": status, "error": error, "time": time.time(), "calls": self.journal.calls},
        )
        self.journal.catch_up()  # the trackers wait for the end as well
        if self.journal.waiting:  # they won't come to it: the disk does not take it
            deadline = min(deadline, time.monotonic() + FULL_DISK_SECONDS)
        for consumer in self.consumers.values():
            consumer.hurry()
        for consumer in self.consumers.values():
            if not consumer.wait_done(deadline - time.monotonic()):
                self._say_undelivered(consumer)
        if not self.run.folder.exists():
            self.notices.warn_once(
                "folder",
                f"The run's folder {self.run.folder} is gone: what was logged is not on disk.",
            )
        self.journal.close()

    def _wait_settled(self, deadline: float) -> None:
        while self._awaited and time.monotonic() < deadline:
            time.sleep(SETTLE_SECONDS)
        if self._awaited:
            logger.warning(
                "%d logged calls are lost: their tensors were not computed in time.",
                len(self._awaited),
            )

    def _say_undelivered(self, consumer: Consumer) -> None:
        count = max(0, self.journal.calls - consumer.delivered)
        reason = f" ({consumer.failure})" if consumer.failure else ""
        kept = "" if self.journal.waiting else f" The journal in {self.run.folder} has them all."
        logger.warning(
            "The tracker %s has not taken %d of %d logged calls in time%s.%s",
            consumer.name,
            count,
            self.journal.calls,
            reason,
            kept,
        )

    def abandon(self) -> None:
        """Let go of everything in a forked child: it neither writes nor waits."""
        self._ended = True
        self.journal.forget()


def _all_ready(flat: Values) -> bool:
    """Whether the values of a call can be read; a device that fails is asked for them at once."""
    try:
        return all(value.ready() for value in flat.values if isinstance(value, Deferred))
    except Exception:  # noqa: BLE001 - reading says what it was
        return True


def whole_step(step: Any, notices: Notices) -> int:
    """Return ``step`` as an int; it may be a 0-d tensor, a numpy integer or a whole float.

    Raises:
        TypeError: it is not a number.
        ValueError: it is beyond 64 bits, infinite or NaN.
    """
    try:
        whole = operator.index(step)
    except (TypeError, ValueError):
        if isinstance(step, (str, bytes)):
            raise TypeError(f"log(step={step!r}): a step is a whole number or None.") from None
        try:
            whole = int(step.item() if getattr(step, "size", None) == 1 else step)
        except TypeError:
            raise TypeError(
                f"log(step={step!r}): a step is a whole number or None, not {type(step).__name__}."
            ) from None
        except (ValueError, OverflowError):
            raise ValueError(f"log(step={step!r}): a step is a whole number or None.") from None
        if whole != step:
            notices.warn_once(
                "step", f"log(step={step!r}): a step is a whole number; {whole} is used."
            )
    if not -(1 << 63) <= whole < 1 << 63:
        raise ValueError(f"log(step={step!r}): a step has to fit in 64 bits.")
    return whole
