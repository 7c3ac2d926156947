"""End as the first argument says, on the rank of the second one; other ranks wait for ever."""

import os
import signal
import sys
import threading

how, where = sys.argv[1], sys.argv[2]
rank = os.environ.get("RANK", "0")


def in_barrier():
    from rankzero import PartialState

    state = PartialState()
    if rank == where:
        raise ValueError("rank 1 will not come")
    state.wait_for_everyone()


def leaving_early():
    from rankzero import PartialState

    state = PartialState()
    if rank == where:
        sys.exit(0)
    state.wait_for_everyone()


def raised_from_another():
    try:
        {}["missing"]
    except KeyError as error:
        raise ValueError("deeper") from error


def with_a_thread_that_never_ends():
    threading.Thread(target=threading.Event().wait).start()
    raise ValueError("left a thread behind")


ENDINGS = {
    "raise": lambda: int("three"),
    "cause": raised_from_another,
    "exit 3": lambda: sys.exit(3),
    "exit text": lambda: sys.exit("out of data"),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGSEGV": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "thread": with_a_thread_that_never_ends,
}

if how == "barrier":
    in_barrier()
elif how == "leave early":
    leaving_early()
elif rank == where:
    ENDINGS[how]()
threading.Event().wait()
