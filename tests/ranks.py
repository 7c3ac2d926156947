"""Run a function on N real processes over gloo, and get back what each returned.

Processes come from a fork server that has torch loaded already, so that starting one takes
milliseconds. Every call has a process group of its own: nothing leaks from test to test.
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import socket
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "torch.distributed", "numpy", "tests.ranks"])


def free_port() -> int:
    """Return a port on 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun sets for one rank on one machine."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


class RankFailed(AssertionError):
    """One or more ranks raised; the message holds their tracebacks."""


def _rank_main(
    module: str, name: str, args: tuple[Any, ...], env: dict[str, str], pipe: Any
) -> None:
    os.environ.update(env)
    import torch

    from rankzero.distributed.process_group import destroy

    torch.set_num_threads(1)
    try:
        function: Callable[..., Any] = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
        outcome = (True, function(*args))
    except BaseException as error:
        outcome = (False, (type(error).__name__, str(error), traceback.format_exc()))
    pipe.send(outcome)
    pipe.close()
    with contextlib.suppress(Exception):
        destroy()


def start_ranks(
    function: Callable[..., Any], world_size: int, *args: Any, env: dict[str, str] | None = None
) -> list[tuple[Any, Any]]:
    """Start the ranks and return ``(process, pipe)`` of each, for tests that kill them."""
    port = free_port()
    ranks = []
    for rank in range(world_size):
        reader, writer = _context.Pipe(duplex=False)
        variables = {
            "RANKZERO_USE_CPU": "1",
            "OMP_NUM_THREADS": "1",
            **rank_environment(rank, world_size, port),
            **(env or {}),
        }
        process = _context.Process(
            target=_rank_main,
            args=(function.__module__, function.__qualname__, args, variables, writer),
            daemon=False,  # a rank may have children of its own: a loader's workers
        )
        process.start()
        writer.close()
        ranks.append((process, reader))
    return ranks


def collect(ranks: list[tuple[Any, Any]], timeout: float = 90.0) -> list[tuple[bool, Any]]:
    """Wait for each rank's ``(succeeded, value or (type, message, traceback))``; end them all."""
    deadline = time.monotonic() + timeout
    outcomes: dict[int, tuple[bool, Any]] = {}
    waiting = {reader: rank for rank, (_, reader) in enumerate(ranks)}
    try:
        while waiting:
            ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for reader in ready:
                rank = waiting.pop(reader)
                try:
                    outcomes[rank] = reader.recv()
                except EOFError:
                    ranks[rank][0].join(5)
                    code = ranks[rank][0].exitcode
                    outcomes[rank] = (
                        False,
                        (
                            "ProcessDied",
                            f"exit code {code}",
                            f"rank {rank} died with exit code {code}",
                        ),
                    )
        for rank in waiting.values():
            outcomes[rank] = (
                False,
                (
                    "Timeout",
                    f"no answer in {timeout} s",
                    f"rank {rank} gave no answer in {timeout} s",
                ),
            )
        for process, _ in ranks:
            process.join(max(0.1, deadline - time.monotonic()) if not waiting else 0.1)
    finally:
        for process, _ in ranks:
            if process.is_alive():
                process.kill()
            process.join()
    return [outcomes[rank] for rank in range(len(ranks))]


def run_ranks(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    timeout: float = 90.0,
    env: dict[str, str] | None = None,
) -> list[Any]:
    """Call a module-level ``function(*args)`` on ``world_size`` ranks; return each rank's value.

    Each rank has torchrun's variables and RANKZERO_USE_CPU set; the process group is for the
    function to open (``PartialState()`` does). Values travel by pickle.

    Raises:
        RankFailed: with the traceback of each rank that raised, died or gave no answer in time.
    """
    outcomes = collect(start_ranks(function, world_size, *args, env=env), timeout)
    failures = [
        f"--- rank {rank} ---\n{value[2]}" for rank, (ok, value) in enumerate(outcomes) if not ok
    ]
    if failures:
        raise RankFailed("\n" + "\n".join(failures))
    return [value for _, value in outcomes]


def run_ranks_failing(
    function: Callable[..., Any],
    world_size: int,
    *args: Any,
    timeout: float = 90.0,
    env: dict[str, str] | None = None,
) -> list[tuple[str, str]]:
    """Like ``run_ranks`` where every rank is to raise; return each one's (type name, message)."""
    outcomes = collect(start_ranks(function, world_size, *args, env=env), timeout)
    returned = [rank for rank, (ok, _) in enumerate(outcomes) if ok]
    if returned:
        raise AssertionError(f"ranks {returned} returned instead of raising; all: {outcomes}")
    return [(value[0], value[1]) for _, value in outcomes]
