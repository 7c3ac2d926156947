"""One rank of a launch: runs the script as ``python SCRIPT`` would, and keeps what went wrong.

Started by path, with the standard library alone, so that nothing of rankzero or torch is imported
before the script says so. An exception is written to the launcher's error file (torch.distributed's
elastic format, with a few fields more) instead of being printed, since several ranks printing at
once bury the cause: the launcher shows the first rank's traceback when all have ended.
"""

from __future__ import annotations

import builtins
import contextlib
import faulthandler
import json
import os
import runpy
import signal
import sys
import threading
import time
import traceback
import types
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, NoReturn

GRACE_SECONDS = 8.0
"""How long a rank that failed, or lost its launcher, may take to end before it is killed."""

LAUNCHER_PID = "RANKZERO_LAUNCHER_PID"
CRASH_FILE = "crash.txt"
END_FILE = "ended.txt"

_OWN_FILES = {__file__, runpy.__file__, "<frozen runpy>"}
_LOST_CONTACT = (
    "gloo/transport",
    "Connection closed by peer",
    "Connection reset by peer",
    "ncclRemoteError",
    "NCCL communicator was aborted",
)


def main() -> NoReturn:
    """Run ``sys.argv[1:]``, a script or ``-m`` and a module, each with its arguments."""
    target = sys.argv[1:]
    end_with_launcher()
    for stream in (sys.stdout, sys.stderr):
        # Whole lines, at once: ranks that share a terminal don't cut each other's lines in two.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True, write_through=False)
    record_crashes()
    sys.excepthook = announce
    try:
        if target[0] == "-m":
            run_module(target[1], target[2:])
        else:
            run_script(target[0], target[1:])
    except SystemExit as stop:
        if stop.code not in (None, 0):
            code = stop.code if isinstance(stop.code, int) else 1
            record(without_own_frames(stop), code)
            limit_exit_time(code)
        else:
            note_end()
        # As it stands now: a tracker's may want to know, of a bare `raise SystemExit` as well.
        sys.exit(stop.code)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the launcher is to show it
        code = 130 if isinstance(error, KeyboardInterrupt) else 1
        record(without_own_frames(error), code)
        limit_exit_time(code)
        # The hook that stands now: a tracker's or the script's own may want to know of the error.
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(code)
    note_end()
    sys.exit(0)


def run_script(path: str, arguments: list[str]) -> None:
    """Run the script at ``path`` in a fresh ``__main__``, which stays for pickles and atexit."""
    full = str(Path(path).absolute())
    sys.argv = [path, *arguments]
    put_first_on_path(str(Path(path).resolve().parent))
    module = fresh_main()
    module.__file__ = full
    module.__loader__ = SourceFileLoader("__main__", full)
    module.__dict__["__cached__"] = None
    code = compile(Path(full).read_bytes(), full, "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - running the user's script is the point


def run_module(name: str, arguments: list[str]) -> None:
    """Run the module ``name`` in a fresh ``__main__``, by the function that ``python -m`` calls."""
    sys.argv = [name, *arguments]
    put_first_on_path(str(Path.cwd()))
    fresh_main()
    # run_module would put the old __main__ back before threads and exit handlers are done with it.
    runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # noqa: SLF001


def fresh_main() -> types.ModuleType:
    """Put a new ``__main__``, with what Python itself has in it, in place of this one."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = builtins  # exec would put the module's dict
    sys.modules["__rankzero_worker__"] = sys.modules["__main__"]
    sys.modules["__main__"] = module
    return module


def put_first_on_path(folder: str) -> None:
    """Put ``folder`` where this file's own folder stands on ``sys.path``."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = folder


def without_own_frames(error: BaseException) -> BaseException:
    """Return ``error`` with a traceback that begins in the user's code."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in _OWN_FILES:
        frames = frames.tb_next
    if frames is None:  # nothing of the user's ran: nor do our frames explain it
        error.__suppress_context__ = True
    return error.with_traceback(frames)


def record(error: BaseException, code: int) -> None:
    """Write ``error`` and its exit ``code`` to the launcher's error file, whole or not at all."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        traceback.print_exception(type(error), error, error.__traceback__)
        return
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    now = time.time()
    details = {
        "py_callstack": text,
        "timestamp": str(int(now)),
        # Whole seconds, as the elastic launcher keeps, can't tell a cause from its consequence.
        "time": now,
        "lost_contact": lost_contact(error),
        "exit_code": code,
    }
    message = {"message": {"message": summary(error), "extraInfo": details}}
    with contextlib.suppress(OSError):
        unfinished = Path(f"{path}.{os.getpid()}")
        unfinished.write_text(json.dumps(message), encoding="utf-8")
        unfinished.replace(path)


def summary(error: BaseException) -> str:
    """Return the error in one line, as the last line of its traceback has it."""
    return traceback.format_exception_only(type(error), error)[-1].strip()


def lost_contact(error: BaseException | None) -> bool:
    """Tell whether ``error``, or one it came from, reads like another rank going away."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        kind = type(error)
        if kind.__name__.startswith("Dist") and kind.__module__.startswith("torch"):
            return True
        if any(words in str(error) for words in _LOST_CONTACT):
            return True
        error = error.__cause__ or error.__context__
    return False


def announce(kind: type[BaseException], error: BaseException, trace: Any) -> None:  # noqa: ARG001
    """Say in one line that this rank failed; the traceback follows when all ranks have ended."""
    if not isinstance(error, KeyboardInterrupt) and not lost_contact(error):
        rank = os.environ.get("RANK", "?")
        print(f"rank {rank} failed: {summary(error)}", file=sys.stderr, flush=True)


def limit_exit_time(code: int) -> None:
    """End this process with ``code`` where its own clean-up hangs."""
    timer = threading.Timer(GRACE_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()


def note_end() -> None:
    """Leave the time at which the script ended well, before its rank leaves the others."""
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if error_file:
        with contextlib.suppress(OSError):
            Path(error_file).with_name(END_FILE).write_text(str(time.time()))


def record_crashes() -> None:
    """Have a crash in native code (segmentation fault, abort) leave its Python stack in a file."""
    error_file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if error_file:
        with contextlib.suppress(OSError):
            # Stays open to the end of the process: the fault handler writes to its descriptor.
            crash_file = Path(error_file).with_name(CRASH_FILE).open("w")
            faulthandler.enable(crash_file, all_threads=False)


def end_with_launcher() -> None:
    """See to it that this rank ends when the launcher is gone, even by SIGKILL."""
    launcher = int(os.environ.pop(LAUNCHER_PID, "0"))
    if not launcher or os.name != "posix":
        return
    if sys.platform == "linux":
        with contextlib.suppress(Exception):
            import ctypes

            set_parent_death_signal = 1
            ctypes.CDLL(None).prctl(set_parent_death_signal, int(signal.SIGTERM), 0, 0, 0)
    threading.Thread(
        target=_watch_launcher, args=(launcher,), name="rankzero-launcher", daemon=True
    ).start()


def _watch_launcher(launcher: int) -> None:
    while os.getppid() == launcher:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_SECONDS)
    # A rank is a session of its own: its loader workers end with it.
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    main()
