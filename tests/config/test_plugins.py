"""The settings objects that scripts pass in."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rankzero.config.plugins import (
    DistributedDataParallelKwargs,
    GradientAccumulationPlugin,
    InitProcessGroupKwargs,
    ProjectConfiguration,
)


def test_only_what_differs_from_the_default_is_passed_on() -> None:
    assert InitProcessGroupKwargs().to_kwargs() == {}
    minute = timedelta(minutes=1)
    assert InitProcessGroupKwargs(timeout=minute).to_kwargs() == {"timeout": minute}
    settings = DistributedDataParallelKwargs(static_graph=True, comm_hook="fp16")
    assert settings.to_kwargs() == {"static_graph": True}


def test_runs_lie_in_the_project_unless_told_otherwise() -> None:
    assert ProjectConfiguration(project_dir="p").logging_dir == "p"
    own = ProjectConfiguration(project_dir="p", logging_dir="l")
    own.set_directories("q")
    assert (own.project_dir, own.logging_dir) == ("q", "l")


@pytest.mark.parametrize("steps", [0, -1, 1.5, "two"])
def test_a_number_of_steps_that_is_none_is_turned_down(steps: object) -> None:
    with pytest.raises(ValueError, match="num_steps="):
        GradientAccumulationPlugin(num_steps=steps)  # type: ignore[arg-type]
