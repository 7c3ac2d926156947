"""N processes on this machine, through torch.distributed's elastic agent.

The agent starts, watches and ends the ranks. What is ours: a meeting place that listens on
127.0.0.1 alone and never races for its port, short limits when ranks are to end, and one closing
block instead of the agent's logs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo
from torch.distributed.elastic.rendezvous.api import RendezvousStoreInfo

from rankzero.cli import worker
from rankzero.cli.failure import RankFailure, describe, first_failure, listed, read_failure
from rankzero.cli.launch import Job
from rankzero.cli.parser import CommandError

ADDRESS = "127.0.0.1"
EARLY_END_SECONDS = 30.0


class LoopbackRendezvous(RendezvousHandler):
    """One machine meets itself: a store on 127.0.0.1, whose port is taken before it is told.

    Args:
        port: the port to listen on, 0 for a free one.
    """

    def __init__(self, port: int = 0) -> None:
        listener = socket.socket()
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((ADDRESS, port))
        except OSError as error:
            listener.close()
            raise CommandError(
                f"--main_process_port={port} can't be used ({error.strerror}): "
                "leave the flag out for a free port.",
                1,
            ) from error
        listener.listen(128)
        self.port = int(listener.getsockname()[1])
        self._run_id = uuid.uuid4().hex
        # The store takes the listening socket itself, so nobody else can get the port in between.
        self._store = TCPStore(
            ADDRESS,
            self.port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
            use_libuv=False,  # which in older versions of torch takes no listening socket
        )
        self._closed = False

    def get_backend(self) -> str:
        """Return the name that the agent logs."""
        return "loopback"

    @property
    def use_agent_store(self) -> bool:
        """The ranks meet at this store: rank 0 opens none of its own."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Return at once: this machine is the only one."""
        return RendezvousInfo(
            PrefixStore(self._run_id, self._store),
            0,
            1,
            RendezvousStoreInfo(ADDRESS, self.port),
        )

    def is_closed(self) -> bool:
        """Tell whether the launch is over."""
        return self._closed

    def set_closed(self) -> None:
        """Note that the launch is over."""
        self._closed = True

    def num_nodes_waiting(self) -> int:
        """Nobody else ever joins."""
        return 0

    def get_run_id(self) -> str:
        """Return a name that no other launch has."""
        return self._run_id

    def shutdown(self) -> bool:
        """Nothing to hand back: the store ends with the launcher."""
        self._closed = True
        return True


class Agent(LocalElasticAgent):
    """The elastic agent, remembering which ranks had failed by themselves before it ended the rest.

    A signal that comes while the ranks are being ended kills them at once.

    Attributes:
        pids: process id of each local rank.
        error_files: where each local rank would leave its exception.
        failed_alone: local rank to exit code, of the ranks that had failed when the ending began.
        exit_codes: local rank to exit code, of all ranks once they have ended.
        noticed: Unix time when the ending began.
    """

    pids: dict[int, int]
    error_files: dict[int, str]
    failed_alone: dict[int, int]
    exit_codes: dict[int, int]
    noticed: float = 0.0
    _told = False

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        # The one method of the agent that is overridden: its context gives a rank 30 s to end.
        started: dict[int, Any] = super()._start_workers(worker_group)
        context: Any = self._pcontext
        close = context.close
        self.pids, self.error_files = dict(context.pids()), dict(context.error_files)
        self.failed_alone, self.exit_codes, self.noticed = {}, {}, 0.0

        def exit_codes() -> dict[int, int]:
            handlers = context.subprocess_handlers.items()
            codes = {rank: handler.proc.poll() for rank, handler in handlers}
            return {rank: code for rank, code in codes.items() if code is not None}

        def close_soon(death_sig: signal.Signals | None = None, timeout: int = 30) -> None:
            if not self.noticed:
                self.noticed = time.time()
                self.failed_alone = {rank: code for rank, code in exit_codes().items() if code}
                for name in handled_signals():
                    signal.signal(signal.Signals[name], self._kill_workers)
            close(death_sig, min(timeout, int(worker.GRACE_SECONDS)))
            self.exit_codes = exit_codes()

        context.close = close_soon
        return started

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result: RunResult = super()._monitor_workers(worker_group)
        note = None if self._told else early_end_note(self.error_files, time.time())
        if note:
            self._told = True
            print(note, file=sys.stderr, flush=True)
        return result

    def _kill_workers(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if os.name == "posix":
            signal_sessions(self.pids.values(), signal.SIGKILL)


def run_many(job: Job) -> int:
    """Start ``job.num_processes`` ranks, wait for them, and return the launch's exit status."""
    if "LOGLEVEL" not in os.environ:
        # The agent logs processes and signals; what a user needs is the closing block.
        logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)
        logging.disable(logging.ERROR)
    set_environment(job)
    with tempfile.TemporaryDirectory(
        prefix="rankzero-launch-", ignore_cleanup_errors=True
    ) as folder:
        logs = DefaultLogsSpecs(log_dir=folder)
        agent = make_agent(job, logs)
        try:
            result = agent.run()
        except SignalException as stopped:
            end_leftovers(agent)
            name = signal.Signals(stopped.sigval).name
            print(f"\nrankzero launch: stopped by {name}; all ranks have ended.", file=sys.stderr)
            return 128 + int(stopped.sigval)
        if not result.is_failed():
            return 0
        end_leftovers(agent)
        failures = read_failures(agent)
        sys.stdout.flush()
        first = first_failure(failures)
        ended = ended_before(agent.error_files, first.when)
        block = describe(failures, job.num_processes, ended)
        print(block, end="", file=sys.stderr)
        return first.status


def make_agent(job: Job, logs: DefaultLogsSpecs) -> Agent:
    """Return the agent that will run ``job``."""
    spec = WorkerSpec(
        role="rank",
        local_world_size=job.num_processes,
        entrypoint=sys.executable,
        args=(worker.__file__, *escape(job.target)),
        rdzv_handler=LoopbackRendezvous(job.port),
        max_restarts=0,
        monitor_interval=0.1,
        local_addr=ADDRESS,
    )
    return Agent(spec=spec, logs_specs=logs)


def escape(arguments: list[str]) -> list[str]:
    """Return ``arguments`` as the agent, which fills ``$`` templates, passes them on unchanged."""
    return [argument.replace("$", "$$") for argument in arguments]


def set_environment(job: Job) -> None:
    """Set what every rank inherits: settings, threads, and which launcher to follow."""
    os.environ.update(job.environment)
    os.environ[worker.LAUNCHER_PID] = str(os.getpid())
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // job.num_processes)))
    loopback = loopback_interface()
    if loopback is not None:
        # gloo would look the machine's own name up, which fails or is slow on many a machine.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ",".join(handled_signals())


def handled_signals() -> list[str]:
    """Return the names of the signals on which the launcher ends the ranks."""
    handled = ["SIGTERM", "SIGINT"]
    if os.name == "posix":
        handled.append("SIGQUIT")
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # under nohup it stays ignored
            handled.append("SIGHUP")
    return handled


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def loopback_interface() -> str | None:
    """Return the name of the network interface that has 127.0.0.1, such as ``lo``."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(address.address == ADDRESS for address in addresses):
            return str(name)
    return None


def read_failures(agent: Agent) -> list[RankFailure]:
    """Return how each rank ended that did not end well."""
    failures = []
    for rank, exit_code in agent.exit_codes.items():
        error_file = Path(agent.error_files[rank])
        known = agent.failed_alone.get(rank)
        if exit_code == 0:
            continue
        failures.append(
            read_failure(
                rank=rank,
                pid=agent.pids[rank],
                exit_code=exit_code if known is None else known,
                noticed=agent.noticed,
                error_file=error_file,
                crash_file=error_file.with_name(worker.CRASH_FILE),
                taken_down=known is None,
            )
        )
    return failures


def ended_before(error_files: Mapping[int, str], when: float) -> list[int]:
    """Return the ranks whose script had ended well before that time (Unix seconds)."""
    ended = []
    for rank, error_file in sorted(error_files.items()):
        with contextlib.suppress(OSError, ValueError):  # no such file: it had not
            if float(Path(error_file).with_name(worker.END_FILE).read_text()) < when:
                ended.append(rank)
    return ended


def early_end_note(error_files: Mapping[int, str], now: float) -> str | None:
    """Return what to say where some ranks ended well a while ago and others still run."""
    ended = ended_before(error_files, now - EARLY_END_SECONDS)
    if not ended or len(ended_before(error_files, now)) == len(error_files):
        return None
    return (
        f"rankzero launch: {listed(ended)} of {len(error_files)} ended {EARLY_END_SECONDS:.0f} s ago "
        "without an error, and others still run. One that waits for it will wait until it times out."
    )


def end_leftovers(agent: Agent) -> None:
    """Ask processes that a rank left in its session, such as loader workers, to end as well."""
    if os.name == "posix":
        signal_sessions(getattr(agent, "pids", {}).values(), signal.SIGTERM)


def signal_sessions(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to ranks, each with all processes of its session."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)
