"""A logger that knows its rank."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

from rankzero.config.environment import read_text
from rankzero.distributed import process_group
from rankzero.distributed.topology import read_topology


def _rank() -> tuple[int, int]:
    """Return rank and world size without making any state: a log line must not start a group."""
    from rankzero.distributed.state import PartialState

    if PartialState._shared_state:  # noqa: SLF001
        state = PartialState()
        return state.process_index, state.num_processes
    topology = read_topology(process_group.environment())
    return topology.rank, topology.world_size


class MultiProcessAdapter(logging.LoggerAdapter):  # type: ignore[type-arg]
    """Logs on the main process unless told otherwise, before and after the state exists.

    Each call takes two more arguments:

    - ``main_process_only`` (True): only rank 0 logs.
    - ``in_order`` (False): ranks log one after the other; all must call, since it is a collective.
    """

    def __init__(self, logger: logging.Logger, extra: dict[str, Any] | None = None) -> None:
        super().__init__(logger, extra or {})
        self._warned: set[tuple[Any, ...]] = set()

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        """Return the message and the arguments that a logger knows."""
        return msg, kwargs

    def log(self, level: int, msg: Any, *args: Any, **kwargs: Any) -> None:
        """Log on the ranks that ``main_process_only`` and ``in_order`` choose."""
        main_process_only = kwargs.pop("main_process_only", True)
        in_order = kwargs.pop("in_order", False)
        kwargs.setdefault("stacklevel", 2)
        if in_order:
            # Every rank takes part in the barriers, whatever its level.
            self._log_in_order(level, msg, args, kwargs)
        elif self.isEnabledFor(level) and (not main_process_only or _rank()[0] == 0):
            self._emit(level, msg, args, kwargs)

    def _log_in_order(self, level: int, msg: Any, args: Any, kwargs: dict[str, Any]) -> None:
        from rankzero.distributed.state import PartialState

        state = PartialState()
        kwargs["stacklevel"] += 1
        for rank in range(state.num_processes):
            if rank == state.process_index and self.isEnabledFor(level):
                self._emit(level, msg, args, kwargs)
            state.wait_for_everyone()

    def _emit(self, level: int, msg: Any, args: Any, kwargs: dict[str, Any]) -> None:
        kwargs["stacklevel"] += 1
        message, keywords = self.process(msg, kwargs)
        self.logger.log(level, message, *args, **keywords)

    def warning_once(self, *args: Any, **kwargs: Any) -> None:
        """Warn, unless the same was said before by this logger."""
        key = (*map(repr, args), *sorted((name, repr(value)) for name, value in kwargs.items()))
        if key not in self._warned:
            self._warned.add(key)
            kwargs["stacklevel"] = kwargs.get("stacklevel", 2) + 1
            self.warning(*args, **kwargs)


def get_logger(name: str, log_level: str | None = None) -> MultiProcessAdapter:
    """Return a logger that knows its rank.

    Args:
        name: As of ``logging.getLogger``.
        log_level: "DEBUG", "INFO", ...; None: RANKZERO_LOG_LEVEL, else what logging is set to.

    Raises:
        ValueError: a level that logging does not know.
    """
    logger = logging.getLogger(name)
    level = log_level if log_level is not None else read_text("LOG_LEVEL")
    if level is not None:
        logger.setLevel(level.upper())
    return MultiProcessAdapter(logger)
