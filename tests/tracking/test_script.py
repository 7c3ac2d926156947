"""``tracking.init`` in a plain script, without Accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest

from rankzero import tracking
from rankzero.tracking.reader import find_runs, read_run
from tests.ranks import rank_environment
from tests.tracking.scripts import RUN, run_script, the_run
from tests.tracking.trackers import Memory


def test_a_run_by_hand(tmp_path: Path) -> None:
    run = tracking.init("p", "memory", config={"lr": 0.1}, logging_dir=tmp_path)
    run.log({"loss": 0.5}, step=3)
    assert run.run.folder.parent == tmp_path / "p"
    run.end()
    record = the_run(tmp_path)
    assert (record.status, record.config) == ("finished", {"lr": 0.1})
    assert record.series["loss"].steps.tolist() == [3]
    assert Memory.made[0].ends == [("finished", None)]


def test_a_run_as_a_context_manager_ends_with_it(tmp_path: Path) -> None:
    with tracking.init("p", "memory", logging_dir=tmp_path) as run:
        run.log({"loss": 0.5})
    assert the_run(tmp_path).status == "finished"
    run.end()


def test_an_exception_that_leaves_the_context_is_the_runs_end_and_goes_on(tmp_path: Path) -> None:
    with (
        pytest.raises(ZeroDivisionError),
        tracking.init("p", "memory", logging_dir=tmp_path) as run,
    ):
        run.log({"loss": 1 / 0})
    record = the_run(tmp_path)
    assert (record.status, record.error) == ("failed", "ZeroDivisionError: division by zero")
    assert Memory.made[0].ends == [("failed", "ZeroDivisionError: division by zero")]


def test_a_generator_that_is_closed_early_has_not_failed(tmp_path: Path) -> None:
    def points():
        with tracking.init("p", "memory", logging_dir=tmp_path) as run:
            while True:
                run.log({"loss": 0.5})
                yield

    generator = points()
    next(generator)
    generator.close()
    assert the_run(tmp_path).status == "finished"


def test_several_runs_in_one_script_have_folders_of_their_own(tmp_path: Path) -> None:
    for lr in (0.1, 0.2, 0.3):
        with tracking.init("p", "memory", config={"lr": lr}, logging_dir=tmp_path) as run:
            run.log({"loss": lr})
    records = [read_run(found) for found in find_runs(tmp_path)]
    assert sorted(record.config["lr"] for record in records) == [0.1, 0.2, 0.3]
    assert all(record.series["loss"].values.tolist() == [record.config["lr"]] for record in records)


def test_the_folder_is_runs_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with tracking.init("p", "memory") as run:
        monkeypatch.chdir("/")
        run.log({"loss": 0.5})
    assert the_run(tmp_path / "runs" / "p").calls == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_a_launcher_started_records_only_if_it_is_the_first(
    tmp_path: Path, rank: int
) -> None:
    code = RUN + "run.log({'loss': 1.0})\nrun.get_tracker('memory').tracker.shout('a')\nrun.end()"
    found, _, err = run_script(code, tmp_path, rank_environment(rank, 2, 29500))
    assert (found, err) == (0, "")
    assert len(find_runs(tmp_path)) == (rank == 0)
    if rank == 0:
        assert the_run(tmp_path).info.world_size == 2
    else:
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("log_with", ["nosuch", ["memory", "nosuch"]])
def test_a_mistake_is_an_error_before_anything_is_made(tmp_path: Path, log_with: object) -> None:
    with pytest.raises(ValueError, match="log_with='nosuch' is not known"):
        tracking.init("p", log_with, logging_dir=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
