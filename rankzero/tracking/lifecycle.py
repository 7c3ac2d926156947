"""How a run gets its end when nobody calls for it: exit, an exception, SIGTERM, a fork.

The interpreter tells nobody with which code it exits, so ``sys.exit`` is wrapped, as
``sys.excepthook`` is: a bare ``raise SystemExit(1)`` goes unnoticed.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # now: it can't be imported any more once the exit has begun
import contextlib
import functools
import os
import signal
import socket
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType

    from rankzero.tracking.recorder import Recorder

KILLED_SECONDS = 5.0
STUCK_SECONDS = 2.0

_live: list[Recorder] = []


def watch(recorder: Recorder) -> None:
    """See to it that ``recorder`` is finished however the process ends."""
    _install_once()
    _watch_child()
    _live.append(recorder)
    _termination.install()


def unwatch(recorder: Recorder) -> None:
    """Forget a recorder that was finished."""
    if recorder in _live:
        _live.remove(recorder)
    if not _live:
        _termination.uninstall()


_installed = False


def _install_once() -> None:
    global _installed
    if _installed:
        return
    _installed = True
    # Before daemon threads stop and while new threads can still start, as opening a tracker does.
    register: Callable[[Callable[[], None]], Any] = getattr(
        threading, "_register_atexit", atexit.register
    )
    try:
        register(_at_exit)
    except RuntimeError:  # the exit has begun
        atexit.register(_at_exit)
    _chain_excepthook()
    _chain_exit()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)


def _watch_child() -> None:
    """In a process of multiprocessing, an exception reaches no hook: look as its finalizers run."""
    processes = sys.modules.get("multiprocessing.process")
    if not _live and processes is not None and processes.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _note_exception, exitpriority=0)


def _note_exception() -> None:
    error = sys.exc_info()[1]
    if error is not None:
        for recorder in _live:
            recorder.expect(*describe_exception(error))


def _at_exit() -> None:
    """End the runs once the threads that the interpreter waits for are over: they may log."""
    if _others():
        # Not waited for here: some end by hooks that are run after this one.
        threading.Thread(target=_end_after_others, name="rankzero-exit", daemon=False).start()
    else:
        _end_all()


def _others() -> list[threading.Thread]:
    """Return the threads that keep the process alive, but for an executor's idle workers."""
    ours = (threading.main_thread(), threading.current_thread())
    pooled = concurrent.futures.thread._threads_queues  # noqa: SLF001 - they idle until told
    return [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread not in ours and thread not in pooled
    ]


def _end_after_others() -> None:
    while others := _others():
        others[0].join()
    _end_all()


def _end_all() -> None:
    while _live:
        _live[0].finish()
        unwatch(_live[0])


def describe_exception(error: BaseException) -> tuple[str, str | None]:
    """Return ``(status, text)`` of a run that this exception ends."""
    if isinstance(error, GeneratorExit) or (
        isinstance(error, SystemExit) and error.code in (None, 0)
    ):
        return "finished", None
    status = "killed" if isinstance(error, KeyboardInterrupt) else "failed"
    return status, "".join(traceback.format_exception_only(type(error), error)).strip()


def _chain_excepthook() -> None:
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not hasattr(sys, "ps1"):  # at a prompt, an exception ends nothing
            for recorder in _live:
                recorder.expect(*describe_exception(error))
        previous(kind, error, trace)

    sys.excepthook = hook


def _chain_exit() -> None:
    previous = sys.exit

    @functools.wraps(previous)
    def leave(code: Any = None, /) -> NoReturn:
        if threading.current_thread() is threading.main_thread():
            for recorder in _live:
                recorder.expect(*describe_exception(SystemExit(code)), unless_more=True)
        previous(code)

    sys.exit = leave


def _after_fork() -> None:
    for recorder in _live:
        recorder.abandon()
    _live.clear()
    _termination.forget()


class _Termination:
    """SIGTERM: runs are ended as killed, then what would have happened happens.

    Python runs a signal's handler between two instructions of the main thread. A rank that waits
    inside a collective has none, and would outlive SIGTERM: so a thread listens at the wakeup
    descriptor, and if the handler has not run within two seconds, it ends the process.
    """

    def __init__(self) -> None:
        self._installed = False
        self._previous: Any = None
        self._handled = threading.Event()
        self._pair: tuple[socket.socket, socket.socket] | None = None

    def install(self) -> None:
        """Take SIGTERM over, where this is the main thread and nobody ignores it."""
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        previous = signal.getsignal(signal.SIGTERM)
        if previous is signal.SIG_IGN or previous is None:
            return
        self._previous = previous
        signal.signal(signal.SIGTERM, self._handle)
        self._installed = True
        if previous is signal.SIG_DFL and sys.platform != "win32":
            self._listen()

    def _listen(self) -> None:
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        with contextlib.suppress(ValueError, OSError):
            other = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            if other != -1:  # an event loop is using it
                signal.set_wakeup_fd(other)
                reader.close()
                writer.close()
                return
        self._pair = (reader, writer)
        threading.Thread(
            target=self._watch_wakeups, args=(reader,), name="rankzero-sigterm", daemon=True
        ).start()

    def _watch_wakeups(self, reader: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := reader.recv(64):
                if signal.SIGTERM in received and not self._handled.wait(STUCK_SECONDS):
                    self._end_runs()
                    _die(signal.SIGTERM)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._handled.set()
        if callable(self._previous):
            # The script's own handler decides; if the process goes down by it, it was killed.
            for recorder in _live:
                recorder.expect("killed", "SIGTERM")
            self._previous(number, frame)
            return
        self._end_runs()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _end_runs(self) -> None:
        for recorder in _live:
            recorder.finish("killed", "SIGTERM", min(KILLED_SECONDS, recorder.end_seconds))

    def uninstall(self) -> None:
        """Give SIGTERM back, unless someone else has taken it since."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._previous)
        self._installed = False
        if self._pair is not None:
            reader, writer = self._pair
            ours = writer.fileno()
            other = signal.set_wakeup_fd(-1)
            if other not in (-1, ours):
                signal.set_wakeup_fd(other)
            with contextlib.suppress(OSError):
                reader.shutdown(socket.SHUT_RDWR)
            writer.close()
            reader.close()
            self._pair = None

    def forget(self) -> None:
        """Undo everything in a forked child: its signals are its own."""
        if self._installed:
            with contextlib.suppress(ValueError, OSError):
                if signal.getsignal(signal.SIGTERM) == self._handle:
                    signal.signal(signal.SIGTERM, self._previous)
                if self._pair is not None:
                    signal.set_wakeup_fd(-1)
            self._pair = None
            self._installed = False
        self._handled = threading.Event()


def _die(number: int) -> None:
    """End the process by a signal's default action, from any thread."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.pythonapi.PyOS_setsig.argtypes = (ctypes.c_int, ctypes.c_void_p)
        ctypes.pythonapi.PyOS_setsig(number, None)
        os.kill(os.getpid(), number)
    os._exit(128 + number)


_termination = _Termination()
