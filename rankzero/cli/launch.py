"""``rankzero launch [flags] SCRIPT [script arguments]``.

Everything is checked before anything starts. One process is exactly ``python SCRIPT``: the launcher
replaces itself by it, so that pickling, spawned workers, signals, tracebacks and exit codes are
Python's own and no launcher stays in between. Several processes are started by
``rankzero.cli.elastic``.
"""

from __future__ import annotations

import difflib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from rankzero.cli.options import add_flags, raise_problems, read_options
from rankzero.cli.parser import CommandError, Parser
from rankzero.config.environment import read_bool

USAGE = (
    "rankzero launch [flags] SCRIPT [script arguments]\n"
    "       rankzero launch [flags] -m MODULE [module arguments]"
)


@dataclass(frozen=True)
class Job:
    """What is to be started, all of it checked.

    Attributes:
        script: path of the script, or name of the module where ``is_module``.
        arguments: what the script finds in ``sys.argv[1:]``.
        num_processes: how many, on this machine.
        environment: variables to set for the script.
        port: port on 127.0.0.1 where the processes meet; 0 for any free one.
    """

    script: str
    arguments: tuple[str, ...] = ()
    is_module: bool = False
    num_processes: int = 1
    environment: dict[str, str] = field(default_factory=dict)
    port: int = 0

    @property
    def target(self) -> list[str]:
        """The script and its arguments as they stand after ``python`` on a command line."""
        return [*(["-m"] if self.is_module else []), self.script, *self.arguments]


def run(arguments: list[str]) -> int:
    """Start what the command line ``arguments`` ask for; return its exit status."""
    job = read_job(arguments)
    if job.num_processes == 1:
        return run_in_place(job)
    from rankzero.cli.elastic import run_many

    return run_many(job)


def build_parser() -> Parser:
    """Return the parser of the flags that stand before the script's name."""
    parser = Parser(
        prog="rankzero launch",
        usage=USAGE,
        add_help=True,
        description="Run a training script, or a module, on 1 to N processes of this machine.",
        epilog="Flags stand before SCRIPT and are spelled with underscores or dashes.\n"
        "What follows SCRIPT is the script's own.",
    )
    add_flags(parser)
    return parser


def split_arguments(parser: Parser, arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the launcher's flags, and the script with what follows it.

    Raises:
        CommandError: for an unknown flag before the script, naming the nearest.
    """
    position = 0
    while (
        position < len(arguments)
        and arguments[position].startswith("-")
        and arguments[position] != "-"
    ):
        argument = arguments[position]
        if argument == "--":
            return list(arguments[:position]), list(arguments[position + 1 :])
        if not parser.knows(argument):
            raise parser.unknown_flag(argument)
        position += 2 if parser.takes_value(argument) else 1
    return list(arguments[:position]), list(arguments[position:])


def read_job(arguments: Sequence[str]) -> Job:
    """Check the whole command line and return what is to be started.

    Raises:
        CommandError: one line for each thing that is wrong.
    """
    parser = build_parser()
    flags, target = split_arguments(parser, arguments)
    problems: list[str] = []
    options = read_options(vars(parser.parse_args(flags)), problems)
    if not target or not target[0]:
        name = "module" if options.module else "script"
        problems.append(
            f"no {name} to run is named. Usage: {USAGE.splitlines()[options.module].strip()}"
        )
    elif options.module:
        problems.extend(module_problems(target[0]))
    else:
        problems.extend(script_problems(target[0]))
    raise_problems(problems)
    return Job(
        script=target[0],
        arguments=tuple(target[1:]),
        is_module=options.module,
        num_processes=options.num_processes or default_num_processes(cpu=options.cpu),
        environment=options.environment(),
        port=options.main_process_port or 0,
    )


def script_problems(script: str) -> list[str]:
    """Return what is wrong with ``script`` as the path of a script, nothing where it can be run."""
    path = Path(script)
    if path.is_dir():
        scripts = sorted(str(item) for item in path.glob("*.py"))
        hint = f" It holds {', '.join(scripts[:5])}." if scripts else ""
        return [f"{script!r} is a folder, not a script.{hint}"]
    if path.is_file():
        return [] if os.access(path, os.R_OK) else [f"script {script!r} may not be read."]
    folder = path.parent
    if not folder.is_dir():
        return [f"script {script!r} does not exist: there is no folder {str(folder)!r}."]
    files = {item.name: item for item in folder.iterdir() if item.is_file()}
    close = difflib.get_close_matches(path.name, files, 1, cutoff=0.5)
    if not close:
        close = sorted(name for name in files if name.endswith(".py"))[:1]
        hint = f" The folder has {str(files[close[0]])!r}." if close else ""
    else:
        hint = f" Did you mean {str(files[close[0]])!r}?"
    return [f"script {script!r} does not exist.{hint}"]


def module_problems(module: str) -> list[str]:
    """Return what is wrong with ``module`` as a module's name; only its first part is looked up."""
    if module.endswith(".py") or "/" in module:
        return [
            f"-m takes a module's name, like package.module; for the file {module!r} leave -m out."
        ]
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = importlib.util.find_spec(module.partition(".")[0])
    except (ImportError, ValueError):
        found = None
    finally:
        del sys.path[0]
    return [] if found else [f"no module named {module!r} is found from {str(Path.cwd())!r}."]


def default_num_processes(cpu: bool) -> int:
    """Return one process an accelerator, or 1; torch is asked only where there may be several."""
    try:
        if cpu or read_bool("USE_CPU") or not may_have_accelerators():
            return 1
        from rankzero.distributed.devices import find_device

        return find_device().count()
    except (ValueError, RuntimeError) as error:
        raise CommandError(str(error)) from error


def may_have_accelerators(devices: Path = Path("/dev")) -> bool:
    """Tell whether this machine may have more than one accelerator, without importing torch.

    On Linux a driver shows its devices under ``/dev``; macOS has one MPS device at most; elsewhere
    only torch knows.
    """
    if sys.platform == "darwin":
        return False
    if not sys.platform.startswith("linux"):
        return True
    patterns = ("nvidia[0-9]*", "dri/renderD*", "davinci[0-9]*", "accel/accel*", "dxg")
    # One dxg node (Windows' subsystem for Linux) stands for any number of devices.
    return any(len(list(devices.glob(p))) > (0 if p == "dxg" else 1) for p in patterns)


def run_in_place(job: Job) -> int:
    """Become ``python SCRIPT``; where a process can't be replaced (Windows), run it and wait."""
    command = [sys.executable, *job.target]
    environment = {**os.environ, **job.environment}
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "posix":
        replace_process(command, environment)
    return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603


def replace_process(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Put ``command`` in this process's place."""
    try:
        os.execve(command[0], command, dict(environment))  # noqa: S606 - replacing is the point
    except OSError as error:
        raise CommandError(f"could not start {command[0]!r}: {error}", 1) from error
