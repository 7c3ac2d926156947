"""What ``log`` has taken is on disk, whenever and however the process is killed."""

from __future__ import annotations

import math
import random
import signal
from pathlib import Path

import pytest

from rankzero.tracking.reader import RunRecord, read_run
from rankzero.tracking.tail import JournalTail
from tests.tracking.scripts import RUN, start_script, the_run

ENDLESS = (
    RUN
    + """
import math
step = 0
while True:
    run.log({"sin": math.sin(step), "step": step, "odd": step % 2 == 1}, step=step)
    if step % 5 == 0:
        run.log({"text": f"step {step}", "huge": 10 ** 30 + step}, step=step)
    os.write(1, b"%d\\n" % step)
    step += 1
"""
)


def check(record: RunRecord, returned: int) -> None:
    """Check that all values up to step ``returned`` are there, and no wrong ones."""
    sines = record.series["sin"]
    count = len(sines.steps)
    assert count in (returned + 1, returned + 2)
    assert sines.steps.tolist() == list(range(count))
    assert sines.values.tolist() == [math.sin(step) for step in range(count)]
    assert record.series["step"].values.tolist() == list(range(count))
    assert record.series["odd"].values.tolist() == [step % 2 for step in range(count)]
    texts = [text.text for text in record.texts["text"]]
    assert texts[: returned // 5 + 1] == [f"step {step}" for step in range(0, returned + 1, 5)]
    assert record.skipped <= 1


@pytest.mark.parametrize("seed", range(10))
def test_a_run_that_is_killed_at_any_moment_has_all_that_was_logged_and_counts_as_crashed(
    tmp_path: Path, seed: int
) -> None:
    count = random.Random(seed).randrange(1, 3000)
    with start_script(ENDLESS, tmp_path) as process:
        for _ in range(count):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        returned = count - 1 + len(rest)
        assert process.wait(30) == -signal.SIGKILL
    record = the_run(tmp_path)
    check(record, returned)
    assert (record.status, record.error) == ("crashed", None)


def test_a_run_is_read_while_it_goes_on(tmp_path: Path) -> None:
    with start_script(ENDLESS, tmp_path) as process:
        assert process.stdout.readline() == "0\n"
        (journal,) = tmp_path.glob("runs/p/*/journal.rz")
        tail = JournalTail(journal)
        seen: list[int] = []
        for step in range(1, 200):
            assert process.stdout.readline() == f"{step}\n"
            seen += [r.step for r, _ in tail.read() if "sin" in getattr(r, "keys", ())]
            assert seen == list(range(len(seen)))
            assert len(seen) > step
            if step % 50 == 0:
                record = read_run(journal)
                assert (record.status, record.info.pid) == ("running", process.pid)
                assert len(record.series["sin"].steps) > step
        tail.close()
        process.kill()


def test_a_killed_runs_forked_child_does_not_make_it_look_alive(tmp_path: Path) -> None:
    code = RUN + (
        'run.log({"loss": 1.0})\n'
        "if os.fork() == 0:\n"
        "    print(os.getpid(), flush=True)\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "signal.pause()\n"
    )
    with start_script(code, tmp_path) as process:
        assert int(process.stdout.readline()) != process.pid
        assert the_run(tmp_path).status == "running"
        process.kill()
        process.wait(30)
        record = the_run(tmp_path)
        assert (record.status, record.calls) == ("crashed", 1)
        process.stdin.close()
        assert process.stdout.read() == ""  # the child is gone too
