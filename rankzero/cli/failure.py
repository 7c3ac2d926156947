"""Which rank failed first, and how to say so: the last thing on the user's screen."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_USUAL_MEANING = {
    "SIGKILL": "often the out-of-memory killer",
    "SIGSEGV": "a crash inside native code",
    "SIGABRT": "native code gave up; its message stands further up",
    "SIGBUS": "often no room left in shared memory (/dev/shm)",
    "SIGILL": "often a binary built for another processor",
    "SIGTERM": "someone asked it to end",
}


@dataclass(frozen=True)
class RankFailure:
    """How one rank ended.

    Attributes:
        rank: global rank.
        pid: its process id.
        exit_code: as ``subprocess`` has it: -n where signal n ended the process.
        when: Unix time in seconds, of the exception or of the launcher's noticing.
        summary: the exception in one line, or None.
        traceback: the Python stack, ending in a newline, or None.
        lost_contact: the exception reads like another rank going away.
        taken_down: the launcher had ended it because of another rank.
    """

    rank: int
    pid: int
    exit_code: int
    when: float
    summary: str | None = None
    traceback: str | None = None
    lost_contact: bool = False
    taken_down: bool = False

    @property
    def status(self) -> int:
        """The exit status a shell would show: 128 + n for signal n."""
        return self.exit_code if self.exit_code >= 0 else 128 - self.exit_code

    @property
    def cause(self) -> str:
        """The end of this rank in a few words."""
        if self.exit_code >= 0:
            return f"exit code {self.exit_code}"
        name = signal_name(-self.exit_code)
        meaning = _USUAL_MEANING.get(name)
        return f"killed by {name} (signal {-self.exit_code}){f', {meaning}' if meaning else ''}"


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9, and so on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def read_failure(
    rank: int,
    pid: int,
    exit_code: int,
    noticed: float,
    error_file: Path,
    crash_file: Path,
    taken_down: bool,
) -> RankFailure:
    """Put together what a rank left behind in its error file or in its crash file, if anything."""
    details: Mapping[str, Any] = {}
    message: dict[str, Any] = {}
    try:
        content = json.loads(error_file.read_text(encoding="utf-8"))["message"]
        message = content if isinstance(content, dict) else {"message": str(content)}
        details = message.get("extraInfo", {})
    except (OSError, ValueError, KeyError, TypeError):
        pass
    trace = details.get("py_callstack")
    if trace is None and exit_code < 0:
        trace = read_crash(crash_file)
    return RankFailure(
        rank=rank,
        pid=pid,
        exit_code=int(details.get("exit_code", exit_code)) if taken_down else exit_code,
        when=float(details.get("time", noticed)),
        summary=message.get("message"),
        traceback=trace,
        lost_contact=bool(details.get("lost_contact", False)),
        taken_down=taken_down and not details,
    )


def read_crash(crash_file: Path) -> str | None:
    """Return the stack that the fault handler wrote, without the frames of the rank's runner."""
    try:
        lines = crash_file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    unwanted = ("cli/worker.py", "<frozen runpy>", "Extension modules:")
    kept = [line for line in lines if not any(words in line for words in unwanted)]
    while kept and not kept[-1].strip():
        kept.pop()
    return "\n".join(kept) + "\n" if kept else None


def first_failure(failures: Iterable[RankFailure]) -> RankFailure:
    """Return the failure that the others followed from.

    A rank that the launcher ended comes last, and one that only lost contact with another rank
    comes after one with a reason of its own; otherwise the earliest is the first.
    """
    return min(failures, key=lambda f: (f.taken_down, f.lost_contact, f.when, f.rank))


def listed(ranks: Iterable[int]) -> str:
    """Return ``rank 1``, ``ranks 1, 2``, or nothing where there is none."""
    names = [str(rank) for rank in ranks]
    return f"rank{'s' * (len(names) > 1)} {', '.join(names)}" if names else ""


def describe(
    failures: Iterable[RankFailure], world_size: int, ended_well: Iterable[int] = ()
) -> str:
    """Return the closing block: who failed first and how, who else, and last the traceback.

    Args:
        failures: how each rank ended that did not end well.
        world_size: number of ranks.
        ended_well: ranks whose script had ended well before the first one failed.
    """
    ended_well = list(ended_well)
    failures = sorted(failures, key=lambda f: f.rank)
    first = first_failure(failures)
    headline = f"rankzero launch: rank {first.rank} of {world_size} failed first: {first.cause} "
    lines = ["", f"{headline}(pid {first.pid} on {socket.gethostname()})."]
    gone = listed(ended_well)
    if gone:
        hint = "; a rank that waits for one that has ended fails" * first.lost_contact
        lines.append(f"  had ended before it, without an error: {gone}{hint}")
    for other in failures:
        if other is first or other.taken_down:
            continue
        if other.lost_contact:
            lines.append(f"  rank {other.rank} lost contact and failed after it")
            continue
        lines.append(f"  rank {other.rank} failed after it: {other.summary or other.cause}")
    ended = listed(f.rank for f in failures if f.taken_down and f.rank not in ended_well)
    if ended:
        lines.append(f"  ended because of it: {ended}")
    if first.traceback:
        lines += [f"  what rank {first.rank} was doing:", "", first.traceback.rstrip("\n")]
    return "\n".join(lines) + "\n"
