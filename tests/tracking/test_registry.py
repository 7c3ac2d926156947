"""Trackers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rankzero.config.enums import LoggerType
from rankzero.tracking import Hub, registry
from rankzero.tracking.adapter import Adapter
from tests.tracking.trackers import Memory


@pytest.mark.parametrize(
    ("log_with", "names"),
    [
        (None, []),
        ([], []),
        ("tensorboard", ["tensorboard"]),
        ("TensorBoard", ["tensorboard"]),
        (LoggerType.TENSORBOARD, ["tensorboard"]),
        (["memory", LoggerType.TENSORBOARD], ["memory", "tensorboard"]),
        (("memory", "second", "MEMORY"), ["memory", "second"]),
        ({"memory"}, ["memory"]),
    ],
)
def test_trackers_are_chosen_by_name_each_once_in_order(log_with: Any, names: list[str]) -> None:
    assert registry.choose_trackers(log_with) == names


def test_all_stands_for_those_that_are_installed_and_says_which_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level("INFO", "rankzero.tracking"):
        for log_with in ("all", LoggerType.ALL, ["memory", "ALL"]):
            chosen = registry.choose_trackers(log_with)
            assert {"tensorboard", "memory", "second"} <= set(chosen)
            assert "uninstalled" not in chosen
            assert len(chosen) == len(set(chosen))
    assert "uninstalled: pip install no-such-library" in caplog.messages[0]
    assert "memory" in caplog.messages[0]


def test_all_with_nothing_installed_records_the_run_and_says_so(
    make_hub: Callable[..., Hub],
    warnings: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = registry.ADAPTERS["uninstalled"]
    monkeypatch.setattr(registry, "ADAPTERS", {"uninstalled": row})
    hub = make_hub("all")
    (warning,) = warnings()
    assert "active: none" in warning
    assert "pip install no-such-library" in warning
    hub.init_trackers("p")
    hub.log({"loss": 1.0})
    folder = hub.run.folder
    hub.end()
    assert (folder / "journal.rz").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tensorbord", r"log_with='tensorbord' is not known\. Did you mean 'tensorboard'\?"),
        ("nosuch", r"log_with='nosuch' is not known\. Known: .*'tensorboard'.*'all'"),
        ("", "log_with='' is not known"),
        ("aim", "no adapter for aim yet"),
    ],
)
@pytest.mark.parametrize("listed", [False, True])
def test_an_unknown_name_is_turned_down_with_the_known_ones_nearest_first(
    name: str, message: str, listed: bool
) -> None:
    with pytest.raises(ValueError, match=message):
        Hub([name] if listed else name)


class GeneralTracker:
    """What a script written for another library may pass."""

    name = "mine"
    requires_logging_directory = False


@pytest.mark.parametrize(
    "wrong", [5, True, 0.5, {"memory": {}}, GeneralTracker(), object(), b"memory"]
)
@pytest.mark.parametrize("listed", [False, True])
def test_what_is_no_name_is_turned_down_with_what_to_write(wrong: Any, listed: bool) -> None:
    with pytest.raises(
        TypeError, match=r"is not the name of a tracker\. Write one of: .*'tensorboard'"
    ):
        Hub([wrong] if listed else wrong)


@pytest.mark.parametrize(
    ("init_kwargs", "error", "message"),
    [
        ({"memory": {"color": 1}}, ValueError, r"\['memory'\].*unknown option 'color'.*'colour'"),
        ({"memory": ["colour"]}, TypeError, r"init_kwargs\['memory'\] must be a dict"),
        ({"memry": {}}, ValueError, "init_kwargs='memry' is not known. Did you mean 'memory'"),
        (["memory"], TypeError, "init_kwargs must be a dict by tracker name, not list"),
        ({"tensorboard": {"logdir": "x"}}, ValueError, "'tensorboard'.*'logdir'.*'flush_secs'"),
    ],
)
def test_options_that_no_tracker_knows_are_turned_down_before_a_run_is_made(
    make_hub: Callable[..., Hub], tmp_path: Any, init_kwargs: Any, error: type, message: str
) -> None:
    hub = make_hub(["memory", "tensorboard"])
    with pytest.raises(error, match=message):
        hub.init_trackers("p", init_kwargs=init_kwargs)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"wandb": {"entity": "x"}}, {"second": {"any": 1}}, {}, None])
def test_options_of_trackers_that_are_not_active_are_left_alone(
    make_hub: Callable[..., Hub], options: Any
) -> None:
    make_hub("memory").init_trackers("p", init_kwargs=options)
    assert Memory.made[0].options == {}


@pytest.mark.parametrize("name", sorted(registry.ADAPTERS))
def test_a_registered_adapter_says_who_it_is_without_its_library(name: str) -> None:
    adapter = registry.find_adapter(name)
    assert issubclass(adapter, Adapter)
    assert adapter.name == name
    assert adapter.install
    assert adapter.is_installed() in (True, False)
