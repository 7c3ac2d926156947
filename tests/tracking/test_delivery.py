"""Trackers that are slow, broken or hung delay nobody, lose nothing, and are named once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from rankzero.tracking import Hub
from rankzero.tracking.delivery import read_cursor
from rankzero.tracking.handles import Inert
from rankzero.tracking.reader import read_run
from tests.tracking.journals import read_all
from tests.tracking.scripts import RUN, run_script, start_script, the_run
from tests.tracking.trackers import SECONDS, Faulty, Gated, Memory, Second

Make = Callable[..., Hub]
Warnings = Callable[[], list[str]]


def tracker(kind: type[Memory]) -> Memory:
    (found,) = [made for made in Memory.made if type(made) is kind]
    return found


@pytest.mark.parametrize("method", ["open", "configure", "write", "flush", "close"])
def test_a_tracker_that_does_not_answer_delays_neither_the_loop_nor_the_others(
    make_hub: Make, warnings: Warnings, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(Gated, "closed", (method,))
    hub = make_hub(["gated", "second"], end_timeout=0.2)
    hub.init_trackers("p", config={"lr": 0.1})
    for step in range(50):
        hub.log({"loss": step / 7}, step=step)
    if method != "close":
        assert Gated.arrived.wait(SECONDS)
    for step in range(50, 100):
        hub.log({"loss": step / 7}, step=step)
    folder = hub.run.folder
    tracker(Second).wait_until(lambda entries: len(entries) == 100)
    hub.end()
    assert tracker(Second).steps() == list(range(100))
    assert tracker(Second).ends == [("finished", None)]
    assert tracker(Gated).ends == []
    (warning,) = warnings()
    assert "gated has not taken" in warning
    assert "has them all" in warning
    assert "of 100 logged calls" in warning
    assert str(folder) in warning
    assert read_run(folder).status == "finished"


def test_a_tracker_that_answers_in_the_end_gets_all(make_hub: Make, warnings: Warnings) -> None:
    hub = make_hub("gated")
    hub.init_trackers("p", config={"lr": 0.1})
    for step in range(100):
        hub.log({"loss": step / 7}, step=step)
    assert Gated.arrived.wait(SECONDS)
    assert tracker(Gated).entries == []
    Gated.gate.set()
    hub.end()
    assert tracker(Gated).steps() == list(range(100))
    assert tracker(Gated).configs == [{"lr": 0.1}]
    assert tracker(Gated).ends == [("finished", None)]
    assert warnings() == []


def test_a_tracker_that_refuses_every_third_call_gets_all_with_one_warning(
    make_hub: Make, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankzero.tracking.delivery.FIRST_RETRY_SECONDS", 0.01)
    hub = make_hub(["faulty", "memory"])
    hub.init_trackers("p", config={"lr": 0.1})
    folder = hub.run.folder
    for step in range(100):
        hub.log({"loss": step / 7}, step=step)
        if step % 20 == 0:  # a call at least for each of these parts
            tracker(Faulty).wait_until(lambda entries, n=step: len(entries) > n)
    hub.end()
    for kind in (Faulty, Memory):
        assert tracker(kind).steps() == list(range(100))
        assert tracker(kind).configs == [{"lr": 0.1}]
        assert tracker(kind).ends == [("finished", None)]
    assert tracker(Faulty).raised >= 2
    (warning,) = warnings()
    assert "The tracker faulty fails (ConnectionError: call 3 is refused)" in warning
    assert "\n" not in warning
    assert str(folder) in warning


def test_a_tracker_that_always_refuses_is_named_with_its_reason_at_the_end(
    make_hub: Make, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("503")

    monkeypatch.setattr(Gated, "write", refuse)
    hub = make_hub(["gated", "memory"], end_timeout=0.2)
    hub.init_trackers("p")
    for step in range(20):
        hub.log({"loss": step / 7}, step=step)
    hub.end()
    assert tracker(Memory).steps() == list(range(20))
    assert len(warnings()) == 2
    assert "gated fails (OSError: 503)" in warnings()[0]
    assert "gated has not taken 20 of 20 logged calls in time (OSError: 503)" in warnings()[1]


def test_settings_that_a_tracker_refuses_do_not_cost_it_the_values(
    make_hub: Make, warnings: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TypeError("no settings")

    monkeypatch.setattr("rankzero.tracking.delivery.FIRST_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(Memory, "configure", refuse)
    hub = make_hub()
    hub.init_trackers("p", config={"lr": 0.1})
    hub.log({"loss": 1.0})
    hub.end()
    assert tracker(Memory).steps() == [0]
    assert len(warnings()) == 1


def test_a_tracker_that_is_not_installed_is_a_warning_with_the_line_that_installs_it(
    make_hub: Make, warnings: Warnings
) -> None:
    hub = make_hub(["uninstalled", "memory"])
    hub.init_trackers("p", config={"lr": 0.1})
    folder = hub.run.folder
    hub.log({"loss": 1.0})
    assert isinstance(hub.get_tracker("uninstalled", unwrap=True), Inert)
    assert not hub.get_tracker("uninstalled").shout("a")
    hub.end()
    assert tracker(Memory).steps() == [0]
    assert read_run(folder).calls == 1
    assert "pip install no-such-library" in warnings()[0]
    assert str(folder) in warnings()[0]
    assert len(warnings()) == 2  # the second: what the script asked of it was not done


def test_the_cursor_is_where_the_tracker_has_got_to(make_hub: Make) -> None:
    hub = make_hub(["memory", "gated"], end_timeout=0.2)
    hub.init_trackers("p")
    folder = hub.run.folder
    for step in range(10):
        hub.log({"loss": step / 7}, step=step)
    hub.end()
    journal = folder / "journal.rz"
    assert read_cursor(folder / "cursors" / "memory.json") == journal.stat().st_size
    left, _, _ = read_all(journal, read_cursor(folder / "cursors" / "gated.json"))
    assert [entry.step for entry in left] == list(range(10))


@pytest.mark.parametrize("content", ["", "{}", "[]", "null", '{"offset": "x"}', "\0\0"])
def test_a_cursor_that_cannot_be_read_starts_from_the_beginning(
    tmp_path: Path, content: str
) -> None:
    (tmp_path / "cursor.json").write_text(content)
    assert read_cursor(tmp_path / "cursor.json") == 0
    assert read_cursor(tmp_path / "missing.json") == 0


def test_values_and_options_for_one_tracker_reach_that_one_alone(make_hub: Make) -> None:
    hub = make_hub(["memory", "second"])
    hub.init_trackers("p", init_kwargs={"memory": {"colour": "red"}, "second": None, "wandb": {}})
    hub.log({"a": 1.0}, step=1, log_kwargs={"memory": {"shade": 1}, "wandb": {"commit": True}})
    hub.get_tracker("second").log({"b": 2.0}, step=2, shade=3)
    with pytest.raises(ValueError, match="'second'.*unknown option 'shadw'.*'shade'"):
        hub.get_tracker("second").log({"b": 2.0}, shadw=3)
    hub.end()
    memory, second = tracker(Memory), tracker(Second)
    assert (memory.options, second.options) == ({"colour": "red"}, {})
    assert [(e.keys, e.step, e.options) for e in memory.entries] == [(("a",), 1, {"shade": 1})]
    assert [(e.keys, e.step, e.options) for e in second.entries] == [
        (("a",), 1, None),
        (("b",), 2, {"shade": 3}),
    ]


def test_a_tracker_by_name_forwards_to_its_own_object_while_the_run_is_open(
    make_hub: Make,
) -> None:
    hub = make_hub(["memory", "second"])
    with pytest.raises(ValueError, match=r"Call init_trackers\(\) first"):
        hub.get_tracker("memory")
    hub.init_trackers("p")
    wrapped = hub.get_tracker("memory")
    assert (wrapped.name, wrapped.run_name) == ("memory", hub.run.name)
    assert wrapped.logging_dir == str(hub.run.folder)
    assert wrapped.tracker is hub.get_tracker("memory", unwrap=True) is tracker(Memory)
    assert hub.get_tracker("Memory") is wrapped
    assert wrapped.shout("a") == "A"
    assert [one.name for one in hub.trackers] == ["memory", "second"]
    with pytest.raises(ValueError, match="'nosuch'.*Active: 'memory', 'second'"):
        hub.get_tracker("nosuch")
    with pytest.raises(AttributeError, match="nosuch"):
        _ = wrapped.nosuch
    hub.end()
    with pytest.raises(ValueError, match="not active"):
        hub.get_tracker("memory")


def test_nobody_waits_for_a_hung_tracker_at_the_end_of_a_killed_process(tmp_path: Path) -> None:
    code = RUN.replace('"memory"', '["gated", "memory"]') + (
        "run.log({'loss': 1.0})\nGated.arrived.wait()\nprint('ready', flush=True)\nsignal.pause()"
    )
    with start_script(code, tmp_path, {"RANKZERO_TRACKING_END_TIMEOUT": "0.2"}) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        _, err = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGTERM
    assert "gated has not taken 1 of 1 logged calls" in err
    record = the_run(tmp_path)
    assert record.status == "killed"
    told = json.loads((record.info.folder / "memory.json").read_text())
    assert told == {"status": "killed", "error": "SIGTERM", "entries": 1}


def test_an_end_timeout_that_is_no_number_is_turned_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKZERO_TRACKING_END_TIMEOUT", "soon")
    with pytest.raises(ValueError, match="RANKZERO_TRACKING_END_TIMEOUT='soon'"):
        Hub("memory")


def test_a_forgotten_end_with_a_hung_tracker_ends_the_process_all_the_same(tmp_path: Path) -> None:
    code = RUN.replace('"memory"', '"gated"') + "run.log({'loss': 1.0})"
    found, _, err = run_script(code, tmp_path, {"ACCELERATE_TRACKING_END_TIMEOUT": "0.2"})
    assert found == 0
    assert "gated has not taken 1 of 1 logged calls" in err
    assert the_run(tmp_path).status == "finished"


def test_a_tracker_that_opens_after_the_folder_was_moved_gets_everything(
    tmp_path: Path, make_hub: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Gated, "closed", ("open",))
    hub = make_hub("gated")
    hub.init_trackers("p")
    assert Gated.arrived.wait(SECONDS)
    hub.run.folder.rename(tmp_path / "elsewhere")
    for step in range(10):
        hub.log({"loss": 1.0}, step=step)
    Gated.gate.set()
    hub.end()
    assert tracker(Gated).steps() == list(range(10))
    assert tracker(Gated).ends == [("finished", None)]
