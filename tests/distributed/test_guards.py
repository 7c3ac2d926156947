"""Guards: who runs, who goes first, who gets which share."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

from rankzero.distributed.guards import share_of
from rankzero.state import PartialState
from tests.ranks import run_ranks


def _decorated() -> dict:
    state = PartialState()

    @state.on_main_process
    def main(x: int, y: int = 0) -> int:
        """Docstring."""
        return x + y

    calls = {
        "main": main(1, y=2),
        "local_main": state.on_local_main_process(lambda: "ran")(),
        "local_main_called": state.on_local_main_process()(lambda: "ran")(),
        "last": state.on_last_process(lambda: "ran")(),
        "one": state.on_process(process_index=1)(lambda: "ran")(),
        "one_direct": state.on_process(lambda: "ran", process_index=1)(),
        "local_one": state.on_local_process(local_process_index=1)(lambda: "ran")(),
    }
    assert (main.__name__, main.__doc__) == ("main", "Docstring.")
    return calls


def test_decorated_functions_run_on_their_rank_and_give_none_elsewhere() -> None:
    ran = [
        {name for name, value in calls.items() if value is not None}
        for calls in run_ranks(_decorated, 3)
    ]
    assert ran[0] == {"main", "local_main", "local_main_called"}
    assert ran[1] == {"one", "one_direct", "local_one"}
    assert ran[2] == {"last"}


def test_a_guard_for_a_rank_that_does_not_exist_is_turned_down() -> None:
    with pytest.raises(ValueError, match="process_index=1: write a rank from 0 to 0"):
        PartialState().on_process(print, process_index=1)
    with pytest.raises(ValueError, match="local_process_index=None"):
        PartialState().on_local_process(print)


def _first(folder: str, guard: str, fails: bool) -> list[str]:
    state = PartialState()
    mark = Path(folder) / "mark"
    with (
        contextlib.suppress(RuntimeError),
        getattr(state, guard)(),
    ):
        if state.is_main_process:
            mark.write_text("made")
            if fails:
                raise RuntimeError("the leader failed")
        else:
            return [mark.read_text()]
    return []


@pytest.mark.parametrize("guard", ["main_process_first", "local_main_process_first"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_leader_goes_first_and_lets_the_others_go_even_when_it_fails(
    tmp_path: Path, guard: str, fails: bool
) -> None:
    assert run_ranks(_first, 3, str(tmp_path), guard, fails) == [[], ["made"], ["made"]]


def _print_once() -> str:
    import io

    out = io.StringIO()
    PartialState().print("hello", file=out)
    return out.getvalue()


def test_print_prints_once_a_node() -> None:
    assert run_ranks(_print_once, 2) == ["hello\n", ""]


@given(length=st.integers(0, 50), world=st.integers(1, 20), padded=st.booleans())
def test_shares_are_contiguous_and_complete(length: int, world: int, padded: bool) -> None:
    items = list(range(length))
    shares = [share_of(items, rank, world, apply_padding=padded) for rank in range(world)]
    joined = [item for share in shares for item in share]
    if not padded:
        assert joined == items
        assert max(map(len, shares)) - min(map(len, shares)) <= 1
    elif length:
        assert len({len(share) for share in shares}) == 1
        assert sorted(set(joined)) == items
    else:
        assert shares == [[]] * world


SPLITS: list[tuple[Any, bool, list[Any]]] = [
    ([1, 2, 3, 4, 5], False, [[1, 2], [3, 4], [5]]),
    ([1, 2, 3, 4, 5], True, [[1, 2], [3, 4], [5, 5]]),
    ((1, 2), False, [(1,), (2,), ()]),
    ((1, 2), True, [(1,), (2,), (2,)]),
    (
        {"a": [1, 2], "b": "xy"},
        False,
        [{"a": [1], "b": "x"}, {"a": [2], "b": "y"}, {"a": [], "b": ""}],
    ),
]


@pytest.mark.parametrize(("inputs", "padded", "expected"), SPLITS)
def test_shares_of_three_ranks(inputs: Any, padded: bool, expected: list[Any]) -> None:
    assert [share_of(inputs, rank, 3, padded) for rank in range(3)] == expected


def test_shares_of_tensors_arrays_and_datasets() -> None:
    x = torch.arange(10).reshape(5, 2)
    assert [len(share_of(x, rank, 3)) for rank in range(3)] == [2, 2, 1]
    assert torch.equal(share_of(x, 2, 3, apply_padding=True), x[[4, 4]])
    assert share_of(np.arange(5), 2, 3, apply_padding=True).tolist() == [4, 4]
    dataset = share_of(TensorDataset(x), 2, 3, apply_padding=True)
    assert [item[0].tolist() for item in dataset] == [[8, 9], [8, 9]]
    assert share_of(torch.zeros(0, 2), 1, 3, apply_padding=True).shape == (0, 2)


def test_what_cannot_be_divided_is_turned_down() -> None:
    with pytest.raises(ValueError, match=r"lengths \{'a': 2, 'b': 3\}"):
        share_of({"a": [1, 2], "b": [1, 2, 3]}, 0, 2)
    with pytest.raises(TypeError, match=r"inputs\['b'\]=5 has no length"):
        share_of({"a": [1, 2], "b": 5}, 0, 2)
    with pytest.raises(TypeError, match="inputs=3: split_between_processes divides lists"):
        share_of(3, 0, 2)


def test_one_process_gets_everything() -> None:
    with PartialState().split_between_processes([1, 2, 3]) as share:
        assert share == [1, 2, 3]
