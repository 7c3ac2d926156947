"""Shared state: one set of facts a process, agreed once, left cleanly."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from rankzero.config.enums import DistributedType
from rankzero.config.plugins import GradientAccumulationPlugin
from rankzero.state import AcceleratorState, GradientState, PartialState, is_initialized
from tests.ranks import free_port, rank_environment, run_ranks


def _facts() -> dict:
    state = PartialState(timeout=timedelta(seconds=30))
    again = PartialState()
    return {
        "same": again.__dict__ is state.__dict__,
        "rank": (state.process_index, state.local_process_index, state.num_processes),
        "roles": (state.is_main_process, state.is_local_main_process, state.is_last_process),
        "type": state.distributed_type,
        "backend": state.backend,
        "device": str(state.device),
        "launch_id": state.launch_id,
        "timeout": dist.distributed_c10d._get_default_timeout("gloo") is not None,
    }


def test_ranks_agree_on_one_launch_and_know_their_places() -> None:
    facts = run_ranks(_facts, 3)
    assert [f["rank"] for f in facts] == [(0, 0, 3), (1, 1, 3), (2, 2, 3)]
    assert [f["roles"] for f in facts] == [
        (True, True, False),
        (False, False, False),
        (False, False, True),
    ]
    assert {f["type"] for f in facts} == {DistributedType.MULTI_CPU}
    assert {f["backend"] for f in facts} == {"gloo"}
    assert all(f["same"] for f in facts)
    ids = {f["launch_id"] for f in facts}
    assert len(ids) == 1
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{6}", ids.pop())


def test_one_process_opens_no_group() -> None:
    state = PartialState()
    assert (state.num_processes, state.process_index, state.backend) == (1, 0, None)
    assert state.distributed_type is DistributedType.NO
    assert not state.use_distributed
    assert not dist.is_initialized()
    state.wait_for_everyone()
    state.destroy_process_group()


def _group_opened_elsewhere() -> tuple:
    dist.init_process_group("gloo")
    state = PartialState()
    return state.process_index, state.num_processes, state.launch_id


def test_a_group_that_the_script_has_opened_is_used() -> None:
    first, second = run_ranks(_group_opened_elsewhere, 2)
    assert (first[:2], second[:2]) == ((0, 2), (1, 2))
    assert first[2] == second[2]


def _timeout_reaches_the_group() -> float:
    from rankzero import Accelerator, InitProcessGroupKwargs

    accelerator = Accelerator(
        kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=77))]
    )
    assert accelerator.num_processes == 2
    backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
    return backend.options._timeout.total_seconds()


def test_the_time_limit_of_collectives_can_be_set() -> None:
    assert run_ranks(_timeout_reaches_the_group, 2) == [77.0, 77.0]


def test_an_option_that_a_group_does_not_take_is_named() -> None:
    env = {**os.environ, **rank_environment(0, 2, free_port()), "RANKZERO_USE_CPU": "1"}
    code = "from rankzero import PartialState; PartialState(time_out=3)"
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60
    )
    assert (
        "TypeError: time_out: a process group takes backend, init_method and timeout" in run.stderr
    )


def test_accelerator_state_holds_the_precision_and_all_that_partial_state_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    assert not is_initialized()
    state = AcceleratorState(_from_accelerator=True)
    assert is_initialized()
    assert state.mixed_precision == "bf16"
    assert state.num_processes == 1
    assert AcceleratorState().mixed_precision == "bf16"
    with pytest.raises(ValueError, match="mixed_precision='fp16'.*already uses 'bf16'"):
        AcceleratorState(mixed_precision="fp16")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = state.nonsense


def test_a_script_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKZERO_MIXED_PRECISION", "bf16")
    assert AcceleratorState(mixed_precision="no", _from_accelerator=True).mixed_precision == "no"


def test_accelerator_state_alone_asks_for_an_accelerator() -> None:
    with pytest.raises(ValueError, match="make an Accelerator first"):
        AcceleratorState()


class Loader:
    end_of_dataloader = False
    remainder = 3


def test_gradient_state_follows_the_innermost_loader() -> None:
    state = GradientState()
    assert (state.end_of_dataloader, state.remainder, state.in_dataloader) == (False, -1, False)
    outer, inner = Loader(), Loader()
    state._add_dataloader(outer)
    state._add_dataloader(inner)
    inner.end_of_dataloader = True
    assert state.end_of_dataloader
    state._remove_dataloader(inner)
    assert state.active_dataloader is outer
    assert (state.end_of_dataloader, state.remainder) == (False, 3)
    state._remove_dataloader(outer)
    assert state.active_dataloader is None


def test_gradient_state_is_shared_and_set_by_the_last_plugin() -> None:
    GradientState(GradientAccumulationPlugin(num_steps=4, sync_each_batch=True))
    state = GradientState()
    assert (state.num_steps, state.sync_each_batch, state.sync_with_dataloader) == (4, True, True)
    GradientState(GradientAccumulationPlugin(num_steps=2))
    assert (state.num_steps, state.sync_each_batch) == (2, False)


EXITS = {
    "return": ("pass", 0),
    "exception on rank 1": ("if state.process_index == 1: raise RuntimeError('boom')", 1),
    "sys.exit": ("import sys; sys.exit(3)", 3),
}


@pytest.mark.parametrize("ending", EXITS)
def test_a_process_leaves_the_group_cleanly_however_it_ends(ending: str) -> None:
    statement, code = EXITS[ending]
    script = textwrap.dedent(f"""
        from rankzero import PartialState
        state = PartialState()
        state.wait_for_everyone()
        {statement}
    """)
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", script],
            env={**os.environ, **rank_environment(rank, 2, port), "RANKZERO_USE_CPU": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    outputs = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert ranks[1].returncode == code
    assert ranks[0].returncode == (0 if "rank 1" in ending else code)
    for output in outputs:
        assert "destroy_process_group" not in output
        assert "terminate called" not in output
