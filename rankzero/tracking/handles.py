"""What ``get_tracker`` returns: a live tracker on the main process, an inert one elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from typing_extensions import Self

    from rankzero.tracking.delivery import Consumer
    from rankzero.tracking.recorder import Recorder

OPEN_SECONDS = 60.0


class Inert:
    """Stands in for a tracker where there is none: every attribute, call and chain does nothing.

    Args:
        name: The tracker's name.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Inert(self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Inert:  # noqa: ARG002
        """Do nothing."""
        return Inert(self.name)

    def __getitem__(self, key: Any) -> Inert:
        return Inert(self.name)

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __repr__(self) -> str:
        return f"<inert tracker {self.name!r}: this rank does not record>"


class Tracker:
    """A tracker of a live run, on the main process.

    ``log`` goes through the journal like everything else. Attributes that the wrapper does not
    have are those of the library's own object (TensorBoard's SummaryWriter, for instance); reaching
    for them waits, at most a minute, until the tracker has started. If it does not start, a
    warning is given and the object that comes back does nothing.

    Attributes:
        name: The tracker's name.
        requires_logging_directory: Whether it writes into the run's folder.
        run_name: The run's name.
        logging_dir: The run's folder.
    """

    main_process_only = True

    def __init__(self, recorder: Recorder, consumer: Consumer) -> None:
        self._recorder = recorder
        self._consumer = consumer
        self.name = consumer.name
        self.requires_logging_directory = consumer.adapter.requires_logging_directory
        self.run_name = recorder.run.name
        self.logging_dir = str(recorder.run.folder)

    @property
    def tracker(self) -> Any:
        """The library's own object."""
        native = self._consumer.adapter.native
        if native is None:
            native = self._consumer.wait_open(OPEN_SECONDS)
        return native if native is not None else self._unavailable()

    def _unavailable(self) -> Inert:
        self._recorder.notices.warn_once(
            f"native {self.name}",
            f"The tracker {self.name} has not started: what the script asks of its own object is not done.",
        )
        return Inert(self.name)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record values for this tracker alone; ``kwargs`` are its ``log_kwargs``."""
        self._consumer.adapter.check_log_options(kwargs)
        options = {self.name: kwargs} if kwargs else None
        self._recorder.log(values, step, options, only=self.name)

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Draw batches of images (name -> batch), now, by the library's own object."""
        if not isinstance(self.tracker, Inert):
            self._consumer.adapter.log_images(values, step, **kwargs)

    def store_init_configuration(self, values: Any) -> None:
        """Record a configuration, as ``init_trackers(config=...)`` does."""
        self._recorder.configure(values)

    def start(self) -> None:
        """Do nothing: a tracker starts by itself."""

    def finish(self) -> None:
        """Do nothing more than to bring what was logged on its way: the run's end closes it."""
        self._consumer.wake()

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_"):
            raise AttributeError(attribute)
        path = self._consumer.adapter.conveniences().get(attribute)
        native = self.tracker
        if path is None:
            return getattr(native, attribute)
        for part in filter(None, path.split(".")):
            native = getattr(native, part)
        return native

    def __repr__(self) -> str:
        return f"<tracker {self.name!r} of run {self.run_name!r}>"
