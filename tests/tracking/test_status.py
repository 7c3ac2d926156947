"""Every run gets its end, whichever way the process goes down; real processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tracking.scripts import ROOT, RUN, START, run_script, start_script, the_run

LOG = 'run.log({"loss": 0.5}, step=1)\n'


def told(folder: Path) -> dict:
    """Return what the tracker was told about the end."""
    (path,) = folder.glob("runs/p/*/memory.json")
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    ("ending", "code", "status", "error"),
    [
        ("", 0, "finished", None),
        ("run.end()", 0, "finished", None),
        ("run.end(); run.end()", 0, "finished", None),
        ("sys.exit()", 0, "finished", None),
        ("sys.exit(0)", 0, "finished", None),
        ("sys.exit(1)", 1, "failed", "SystemExit: 1"),
        ("sys.exit('no data')", 1, "failed", "SystemExit: no data"),
        ("raise ValueError('loss is nan')", 1, "failed", "ValueError: loss is nan"),
        (
            "try:\n    1 / 0\nfinally:\n    run.end()",
            1,
            "failed",
            "ZeroDivisionError: division by zero",
        ),
        ("try:\n    sys.exit(3)\nfinally:\n    run.end()", 3, "failed", "SystemExit: 3"),
        ("try:\n    sys.exit(0)\nfinally:\n    run.end()", 0, "finished", None),
        ("with run:\n    raise KeyError('x')", 1, "failed", "KeyError: 'x'"),
        ("with run:\n    sys.exit(2)", 2, "failed", "SystemExit: 2"),
        ("with run:\n    sys.exit(0)", 0, "finished", None),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass", 0, "finished", None),
        ("try:\n    1 / 0\nexcept ZeroDivisionError:\n    pass\nrun.end()", 0, "finished", None),
        (f"try:\n    sys.exit(1)\nexcept SystemExit:\n    {LOG}", 0, "finished", None),
        ("threading.Thread(target=sys.exit, args=(1,)).start()", 0, "finished", None),
    ],
)
def test_a_run_ends_as_the_process_does_and_its_tracker_is_told(
    tmp_path: Path, ending: str, code: int, status: str, error: str | None
) -> None:
    found, _, _ = run_script(RUN + LOG + ending, tmp_path)
    record = the_run(tmp_path)
    assert (found, record.status, record.error) == (code, status, error)
    assert record.series["loss"].values[0] == 0.5
    assert told(tmp_path) == {"status": status, "error": error, "entries": record.calls}


@pytest.mark.parametrize(
    ("number", "error"), [(signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "KeyboardInterrupt")]
)
def test_sigterm_and_ctrl_c_end_a_run_as_killed_and_the_process_by_that_signal(
    tmp_path: Path, number: signal.Signals, error: str
) -> None:
    code = RUN + LOG + "print('ready', flush=True)\nthreading.Event().wait()"
    with start_script(code, tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        process.communicate(timeout=30)
        assert process.returncode == -number
    record = the_run(tmp_path)
    assert (record.status, record.error, record.calls) == ("killed", error, 1)
    assert told(tmp_path) == {"status": "killed", "error": error, "entries": 1}


@pytest.mark.skipif(sys.platform != "linux", reason="a mutex made of zeros is Linux's")
def test_sigterm_ends_a_run_whose_main_thread_is_stuck_in_c(tmp_path: Path) -> None:
    code = (
        RUN
        + LOG
        + "import ctypes\nlibc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)\n"
    )
    code += (
        "print('ready', flush=True)\nlibc.pthread_mutex_lock(mutex), libc.pthread_mutex_lock(mutex)"
    )
    with start_script(code, tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == -signal.SIGTERM
    assert (the_run(tmp_path).status, told(tmp_path)["status"]) == ("killed", "killed")


@pytest.mark.parametrize(
    ("handler", "code", "status", "error"),
    [
        ("sys.exit(143)", 143, "killed", "SIGTERM"),
        ("raise OSError('preempted')", 1, "killed", "SIGTERM"),
        ("stop.append(1)", 0, "killed", "SIGTERM"),
        ("stop.append(1); run.end()", 0, "finished", None),
    ],
)
def test_a_scripts_own_sigterm_handler_decides_and_the_run_counts_as_killed_if_it_ends_by_it(
    tmp_path: Path, handler: str, code: int, status: str, error: str | None
) -> None:
    script = RUN.replace(
        "run =",
        f"stop = []\ndef handler(*_):\n    {handler}\nsignal.signal(signal.SIGTERM, handler)\nrun =",
    )
    script += LOG + "print('ready', flush=True)\nwhile not stop:\n    signal.pause()"
    with start_script(script, tmp_path) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == code
    record = the_run(tmp_path)
    assert (record.status, record.error) == (status, error)


def test_all_open_runs_of_a_process_are_ended_at_exit(tmp_path: Path) -> None:
    code = RUN + (
        'others = [tracking.init("p", log_with="memory", logging_dir="runs") for _ in range(4)]\n'
        "[one.log({'loss': 1.0}) for one in (run, *others)]"
    )
    assert run_script(code, tmp_path)[0] == 0
    ends = [json.loads(p.read_text()) for p in tmp_path.glob("runs/p/*/memory.json")]
    assert ends == [{"status": "finished", "error": None, "entries": 1}] * 5


def test_a_thread_that_outlives_the_script_logs_to_the_end(tmp_path: Path) -> None:
    code = RUN + (
        "def train():\n"
        "    sys.stdin.readline()\n"
        "    for step in range(100):\n"
        "        run.log({'loss': step / 7}, step=step)\n"
        "thread = threading.Thread(target=train)\n"
        "thread.start()\n"
        "threading._register_atexit(lambda: print('exiting', flush=True))\n"
    )
    with start_script(code, tmp_path) as process:
        assert process.stdout.readline() == "exiting\n"
        _, err = process.communicate("go\n", timeout=30)
        assert (process.returncode, err) == (0, "")
    assert len(the_run(tmp_path).series["loss"].values) == 100
    assert told(tmp_path) == {"status": "finished", "error": None, "entries": 100}


def test_what_an_executors_worker_logs_after_the_end_is_in_the_journal(tmp_path: Path) -> None:
    # exit hooks run last in, first out: the runs', this one, the executors'
    said = START + "threading._register_atexit(lambda: print('ended', flush=True))\n"
    code = RUN.replace(START, said) + (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def late():\n"
        "    sys.stdin.readline()\n"
        "    run.log({'loss': 1.0}, step=2)\n" + LOG + "ThreadPoolExecutor().submit(late)\n"
    )
    with start_script(code, tmp_path) as process:
        assert process.stdout.readline() == "ended\n"
        _, err = process.communicate("go\n", timeout=30)
        assert process.returncode == 0
    record = the_run(tmp_path)
    assert (record.status, record.skipped) == ("finished", 0)
    assert record.series["loss"].values.tolist() == [0.5, 1.0]
    assert "log() was called after the run had ended" in err
    assert told(tmp_path)["entries"] == 1


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)", "run.end()", "raise ValueError"])
def test_a_forked_child_neither_ends_nor_writes_the_run(tmp_path: Path, leave: str) -> None:
    code = RUN + (
        "run.log({'loss': 0.0}, step=0)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for step in range(3):\n"
        "        run.log({'loss': 9.0}, step=step)\n"
        "        run.log({'text': 'child'}, step=step)\n"
        f"    {leave}\n"
        "    sys.exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(tracking.reader.read_run(run.run.folder).status)\n"
        "run.log({'loss': 1.0}, step=1)\n"
    )
    code = "import rankzero.tracking.reader\n" + code
    found, out, err = run_script(code, tmp_path)
    assert (found, out) == (0, "running\n")
    assert err.count("was forked") == 1
    record = the_run(tmp_path)
    assert (record.status, record.skipped) == ("finished", 0)
    assert record.series["loss"].values.tolist() == [0.0, 1.0]
    assert record.texts == {}
    assert told(tmp_path) == {"status": "finished", "error": None, "entries": 2}


def test_a_child_may_start_a_run_of_its_own(tmp_path: Path) -> None:
    code = RUN + (
        "run.log({'loss': 0.0})\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    run.init_trackers('child')\n"
        "    run.log({'loss': 1.0})\n"
        "    run.end()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    assert run_script(code, tmp_path)[0] == 0
    first, second = the_run(tmp_path / "runs" / "p"), the_run(tmp_path / "runs" / "child")
    assert (first.status, second.status) == ("finished", "finished")
    assert (first.calls, second.calls) == (1, 1)


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("ending", "code", "status", "error"),
    [
        ("pass", 0, "finished", None),
        ("raise ValueError('bad batch')", 1, "failed", "ValueError: bad batch"),
        ("sys.exit(3)", 3, "failed", "SystemExit: 3"),
        ("raise SystemExit(0)", 0, "finished", None),
    ],
)
def test_a_process_of_multiprocessing_ends_its_run_as_it_ends_itself(
    tmp_path: Path, method: str, ending: str, code: int, status: str, error: str | None
) -> None:
    (tmp_path / "work.py").write_text(
        "import sys\n"
        "from rankzero import tracking\n"
        "from rankzero.tracking import registry\n"
        "from tests.tracking.trackers import ROWS\n"
        "def work():\n"
        "    registry.ADAPTERS.update(ROWS)\n"
        "    run = tracking.init('p', log_with='memory', logging_dir='runs')\n"
        "    run.log({'loss': 0.5})\n"
        f"    {ending}\n"
    )
    script = (
        "import multiprocessing, sys, work\n"
        "from rankzero import tracking\n"
        f"child = multiprocessing.get_context({method!r}).Process(target=work.work)\n"
        "child.start(); child.join(); print(child.exitcode)"
    )
    assert run_script(script, tmp_path)[1] == f"{code}\n"
    record = the_run(tmp_path)
    assert (record.status, record.error, record.calls) == (status, error, 1)
    assert told(tmp_path) == {"status": status, "error": error, "entries": 1}


def test_the_scripts_excepthook_and_exit_are_called_as_before(tmp_path: Path) -> None:
    code = RUN.replace(
        "run =", "sys.excepthook = lambda kind, *_: print('hook', kind.__name__)\nrun ="
    )
    assert run_script(code + "1 / 0", tmp_path)[1] == "hook ZeroDivisionError\n"


def test_tracking_imports_neither_torch_nor_a_trackers_library() -> None:
    code = (
        "import sys, rankzero.tracking, rankzero.tracking.reader\n"
        "from rankzero.tracking import registry\n"
        "registry.available_trackers()\n"
        "print([m for m in ('torch', 'tensorboard', 'tensorflow') if m in sys.modules])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60
    )
    assert found.stdout == "[]\n", found.stderr
