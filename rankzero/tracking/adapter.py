"""What a tracker's adapter is: one class that knows its library, driven from a thread of its own."""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rankzero.config.choices import nearest_first

if TYPE_CHECKING:
    from rankzero.tracking.run import RunInfo
    from rankzero.tracking.tail import Entry


class MissingPackage(ImportError):
    """The tracker's library is not installed; trying again will not help."""


class Adapter(ABC):
    """Delivers one run to one tracker.

    Making an adapter stores its arguments only. All methods but the class methods are called from
    one thread, in this order: ``open``, ``configure`` if there is a configuration, ``write`` and
    ``flush`` any number of times, ``close``. Any of them may take its time or raise: it delays
    nobody, and a call that raised is made again with the same arguments, so that what it had
    delivered before raising is delivered again where the tracker can't tell.

    Attributes:
        name: The name that ``log_with`` takes.
        package: The module that must be importable.
        install: What ``pip install`` needs for it.
        requires_logging_directory: Whether it writes into the run's folder.
        init_options: What ``init_kwargs[name]`` may hold.
        log_options: What ``log_kwargs[name]`` may hold.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    install: ClassVar[str]
    requires_logging_directory: ClassVar[bool] = False
    init_options: ClassVar[tuple[str, ...]] = ()
    log_options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, run: RunInfo, options: Mapping[str, Any]) -> None:
        self.run = run
        self.options = dict(options)

    @classmethod
    def is_installed(cls) -> bool:
        """Whether the library can be imported; does not import it."""
        try:
            return importlib.util.find_spec(cls.package) is not None
        except (ImportError, ValueError):
            return False

    @classmethod
    def check_init_options(cls, options: Mapping[str, Any]) -> None:
        """Raise ValueError, naming the tracker, for an option of ``init_kwargs`` it does not know."""
        check_options("init_kwargs", cls.name, options, cls.init_options)

    @classmethod
    def check_log_options(cls, options: Mapping[str, Any]) -> None:
        """Raise ValueError, naming the tracker, for an option of ``log_kwargs`` it does not know."""
        check_options("log_kwargs", cls.name, options, cls.log_options)

    @abstractmethod
    def open(self) -> None:
        """Import the library and start the run in it.

        Raises:
            MissingPackage: the library is not installed.
        """

    @abstractmethod
    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the run's configuration: nested dicts and lists of None, bool, int, float, str."""

    @abstractmethod
    def write(self, entries: Sequence[Entry]) -> None:
        """Take some calls, in order. ``options`` of an entry are this tracker's own or None."""

    def flush(self) -> None:  # noqa: B027 - what has nothing to flush says nothing
        """Bring what was written to where it can't be lost; the cursor is stored after this."""

    @abstractmethod
    def close(self, status: str, error: str | None) -> None:
        """End the run as "finished", "failed" (with the exception's text) or "killed"."""

    @property
    @abstractmethod
    def native(self) -> Any:
        """The library's own run or writer; None before ``open``."""

    @classmethod
    def conveniences(cls) -> Mapping[str, str]:
        """Return further names under which scripts reach the native object: name -> attribute path.

        An empty path is the native object itself.
        """
        return {}

    def log_images(self, values: Mapping[str, Any], step: int | None, **kwargs: Any) -> None:
        """Send batches of images straight to the native object.

        Raises:
            NotImplementedError: the adapter does not draw images.
        """
        raise NotImplementedError(f"The {self.name} adapter does not log images in this version.")


def check_options(argument: str, tracker: str, options: Any, known: Sequence[str]) -> None:
    """Raise an error that names the tracker and the known options for an unknown one.

    Raises:
        TypeError: ``options`` is not a mapping.
        ValueError: it has an option that is not known.
    """
    if not isinstance(options, Mapping):
        raise TypeError(
            f"{argument}[{tracker!r}] must be a dict of options, not {type(options).__name__}."
        )
    for name in options:
        if name not in known:
            listed = ", ".join(map(repr, nearest_first(name, known))) or "none"
            raise ValueError(
                f"{argument}[{tracker!r}] has an unknown option {name!r}. Known: {listed}."
            )
