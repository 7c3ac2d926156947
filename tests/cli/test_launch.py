"""``rankzero launch``: a script sees what it would see under plain ``python``, and its rank."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankzero.cli import launch
from tests.cli.commands import SCRIPTS, assert_one_line, environment, rankzero, start
from tests.ranks import free_port

# As a script may be given them: like flags of launch, like templates, with spaces, empty.
ARGUMENTS = ["--cpu", "--num_processes", "3", "-m", "--", "--help", "$x ${y} $$", "a b", "", "-"]
IN_PLACE = ["--cpu"]
TWO_RANKS = ["--cpu", "--num_processes", "2"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, a link to it from elsewhere, and the script in a package."""
    folder = tmp_path_factory.mktemp("project")
    for part in ("own", "package"):
        (folder / part).mkdir()
        shutil.copy(SCRIPTS / "facts.py", folder / part)
    (folder / "linked.py").symlink_to(folder / "own" / "facts.py")
    return folder


def told(folder: Path, name: str, command: list[str]) -> dict[str, Any]:
    """Run a command that runs the script; return what each rank found by its name."""
    facts = folder / name
    facts.mkdir()
    run = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment(FACTS=str(facts)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")
    return {path.stem: json.loads(path.read_text()) for path in sorted(facts.iterdir())}


WAYS = {
    "a script": ([], "linked.py"),
    "a module": (["-m"], "package.facts"),
}


@pytest.fixture(scope="module", params=WAYS)
def seen(request: pytest.FixtureRequest, folder: Path) -> dict[str, dict[str, Any]]:
    """What the script finds under plain python, launched in place, and on two ranks."""
    flag, target = WAYS[request.param]
    commands = {
        "plain": [*flag, target, *ARGUMENTS],
        "in place": ["-m", "rankzero", "launch", *IN_PLACE, *flag, target, *ARGUMENTS],
        # A "--" before the script is the launcher's own, and changes nothing.
        "two ranks": ["-m", "rankzero", "launch", *TWO_RANKS, *flag, "--", target, *ARGUMENTS],
    }
    return {
        kind: told(folder, f"{request.param} {kind}", command) for kind, command in commands.items()
    }


def test_a_script_finds_itself_as_under_plain_python(seen: dict[str, dict[str, Any]]) -> None:
    plain = seen["plain"]["alone"]
    assert plain["script"]["argv"][1:] == ARGUMENTS
    assert plain["script"]["modules"] == []
    assert seen["in place"] == {"alone": {**plain, "settings": {"RANKZERO_USE_CPU": "1"}}}
    for rank in seen["two ranks"].values():
        assert rank["script"] == plain["script"]
        assert rank["parcel"] == plain["parcel"] == ["Parcel", "kept", True]
        assert rank["at exit"] == plain["at exit"]


def test_each_rank_knows_its_place(seen: dict[str, dict[str, Any]]) -> None:
    places = {name: rank["place"] for name, rank in seen["two ranks"].items()}
    assert places == {"0": ["0", "2", "0", "2"], "1": ["1", "2", "1", "2"]}
    for rank in seen["two ranks"].values():
        assert rank["settings"] == {"RANKZERO_USE_CPU": "1"}
    assert seen["in place"]["alone"]["place"] == [None] * 4


@pytest.mark.skipif(os.name != "posix", reason="the two launches meet at a named pipe")
def test_settings_reach_the_accelerator_and_two_launches_do_not_meet(tmp_path: Path) -> None:
    pipe, port = tmp_path / "pipe", free_port()
    os.mkfifo(pipe)
    flags = {
        "r": ["--num_processes=2", "--mixed_precision", "bf16", "--gradient_accumulation_steps=3"],
        "w": ["--num-processes", 2, "--gradient-accumulation-steps", "5", "--mixed-precision=NO"],
    }
    flags["w"] += ["--main-process-port", port]
    launches = {
        way: start("launch", "--cpu", *flags[way], SCRIPTS / "together.py", pipe, way)
        for way in flags
    }
    found: dict[str, dict[str, Any]] = {}
    for way, process in launches.items():
        with process:
            try:
                out, err = process.communicate(timeout=90)
            finally:
                process.kill()
        assert (process.returncode, err) == (0, "")
        found[way] = dict(item for line in out.splitlines() for item in json.loads(line).items())
    own = found["r"]["0"].pop("ports")[0]
    assert own != port
    assert found["r"].pop("1").pop("ports") == [own, own]
    assert found["r"]["0"] == {
        "mixed_precision": "bf16",
        "gradient_accumulation_steps": 3,
        "device": "cpu",
    }
    assert found["w"]["0"] == found["w"]["1"]
    assert found["w"]["0"] == {
        "ports": [port, port],
        "mixed_precision": "no",
        "gradient_accumulation_steps": 5,
        "device": "cpu",
    }


def test_settings_reach_the_accelerator_of_one_process(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from rankzero import Accelerator; a = Accelerator()\n"
        "print(a.mixed_precision, a.gradient_accumulation_steps, a.num_processes)"
    )
    flags = ["--cpu", "--mixed-precision", "bf16", "--gradient_accumulation_steps", 3]
    run = rankzero("launch", *flags, script, env={"ACCELERATE_MIXED_PRECISION": "fp16"})
    assert (run.returncode, run.stdout, run.stderr) == (0, "bf16 3 1\n", "")


def test_a_script_is_told_only_what_was_said(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os; print({k: v for k, v in os.environ.items() if 'RANKZ' in k or 'CCEL' in k})"
    )
    run = rankzero("launch", "--num_processes=1", "script.py", cwd=tmp_path)
    assert run.stdout == "{}\n"
    kept = {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "4"}
    run = rankzero("launch", "--num_processes=1", "script.py", cwd=tmp_path, env=kept)
    assert run.stdout == f"{kept}\n"


BAD = {
    "0": (["--num_processes", "0", "train.py"], ["--num_processes=0", "1 or more"]),
    "a negative number": (["--num-processes", "-1", "train.py"], ["--num_processes=-1", "1 or"]),
    "a word for a number": (["--num_processes=abc", "train.py"], ["--num_processes='abc'", "1 or"]),
    "no number": (["--num_processes"], ["--num_processes", "expected one argument"]),
    "a script for a number": (["--num_processes", "--cpu", "train.py"], ["--num_processes"]),
    "0 steps": (["--gradient_accumulation_steps", "0", "train.py"], ["_steps=0", "1 or more"]),
    "a port too high": (["--main_process_port", "70000", "train.py"], ["=70000", "1 to 65535"]),
    "a precision": (
        ["--mixed_precision", "bf61", "train.py"],
        ["--mixed_precision='bf61'", "Did you mean 'bf16'?", "'bf16', 'fp16', 'no'"],
    ),
    "a precision of later": (["--mixed_precision", "fp8", "train.py"], ["fp8", "no, fp16, bf16"]),
    "a flag": (["--num_proceses", "2", "train.py"], ["--num_proceses", "mean --num_processes?"]),
    "a flag like none": (["-x", "train.py"], ["-x is not a flag", "--help"]),
    "a value for a switch": (["--cpu=yes", "train.py"], ["--cpu", "'yes'"]),
    "no such script": (["trian.py"], ["'trian.py' does not exist", "Did you mean 'train.py'?"]),
    "no such folder": (["nowhere/train.py"], ["'nowhere/train.py'", "no folder 'nowhere'"]),
    "a folder": (["."], ["'.' is a folder", "train.py"]),
    "nothing": ([], ["no script", "SCRIPT"]),
    "only flags": (["--cpu", "--"], ["no script", "SCRIPT"]),
    "an empty name": ([""], ["no script", "SCRIPT"]),
    "no module": (["-m"], ["no module", "MODULE"]),
    "no such module": (["-m", "no_such_module.part"], ["'no_such_module.part'"]),
    "a file as a module": (["-m", "train.py"], ["'train.py'", "leave -m out"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_turned_down_in_one_line_before_anything_starts(
    case: str, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('started')")
    arguments, words = BAD[case]
    run = rankzero("launch", *arguments, cwd=tmp_path)
    assert_one_line(run, "rankzero launch: ", *words)


def test_several_mistakes_are_told_at_once(tmp_path: Path) -> None:
    run = rankzero("launch", "--num_processes=0", "--mixed_precision=?", "gone.py", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    first, second, third = run.stderr.splitlines()
    assert ("--num_processes=0" in first, "'?'" in second, "gone.py" in third) == (True,) * 3


def test_a_bad_word_in_the_environment_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('started')")
    run = rankzero("launch", "train.py", cwd=tmp_path, env={"RANKZERO_USE_CPU": "maybe"})
    assert_one_line(run, "RANKZERO_USE_CPU='maybe'", "true")


def test_a_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('started')")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = rankzero(
            "launch", *TWO_RANKS, f"--main_process_port={port}", "train.py", cwd=tmp_path
        )
    assert (run.returncode, run.stdout) == (1, "")
    assert run.stderr.count("\n") == 1
    assert f"--main_process_port={port} can't be used" in run.stderr


@pytest.mark.skipif(os.name != "posix", reason="the stream is closed by a POSIX shell")
def test_one_process_does_without_an_output_stream(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; sys.exit(sys.stdout is not None)")
    run = subprocess.run(
        ["/bin/sh", "-c", '"$0" -m rankzero launch --cpu train.py >&-', sys.executable],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("devices", "several"),
    [
        ([], False),
        (["nvidia0", "nvidiactl", "nvidia-uvm"], False),
        (["nvidia0", "nvidia1", "nvidiactl"], True),
        (["dri/renderD128"], False),
        (["dri/renderD128", "dri/renderD129", "dri/card0"], True),
        (["dxg"], True),
    ],
)
def test_torch_is_asked_for_accelerators_only_where_there_may_be_several(
    devices: list[str], several: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for device in devices:
        (tmp_path / device).parent.mkdir(exist_ok=True)
        (tmp_path / device).touch()
    monkeypatch.setattr(launch.sys, "platform", "linux")
    assert launch.may_have_accelerators(tmp_path) is several
