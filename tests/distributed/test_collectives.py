"""Collectives over nested structures, on one, two and three ranks."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import torch
import torch.distributed as dist

from rankzero.distributed import collectives
from rankzero.distributed.collectives import (
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    pad_across_processes,
    pad_input_tensors,
    reduce,
)
from rankzero.state import PartialState
from tests.ranks import run_ranks, run_ranks_failing

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024


def _count_collectives(action: Any) -> tuple[Any, int]:
    """Return what ``action`` returns, and how many collectives it took."""
    count, originals = 0, {}

    def counted(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            return originals[name](*args, **kwargs)

        return call

    for name in ("all_reduce", "all_gather", "all_gather_object", "broadcast"):
        originals[name] = getattr(dist, name)
        setattr(dist, name, counted(name))
    try:
        return action(), count
    finally:
        for name, original in originals.items():
            setattr(dist, name, original)


def _gather_everything() -> dict:
    rank = PartialState().process_index
    data = {
        "pair": Pair(torch.full((2, 2), rank), [torch.tensor(rank, dtype=torch.float64)]),
        "bool": torch.tensor([rank == 0, True]),
        "bf16": torch.tensor([[rank + 0.5]], dtype=torch.bfloat16),
        "half": (torch.tensor([rank], dtype=torch.float16), torch.zeros(0, 3)),
        "strided": torch.arange(6).reshape(2, 3).t() + rank,
        "ordered": OrderedDict(c=torch.tensor([complex(rank, 1)])),
        "grad": torch.ones(1, requires_grad=True),
    }
    got, collectives_used = _count_collectives(lambda: gather(data))
    assert isinstance(got["pair"], Pair)
    assert isinstance(got["ordered"], OrderedDict)
    assert got["bf16"].dtype == torch.bfloat16
    assert got["bool"].dtype == torch.bool
    assert got["pair"].right[0].dtype == torch.float64
    assert got["half"][1].shape == (0, 3)
    assert got["grad"].requires_grad == (PartialState().num_processes == 1)
    return {
        "collectives": collectives_used,
        "pair": got["pair"].left.tolist(),
        "zero_d": got["pair"].right[0].tolist(),
        "bool": got["bool"].tolist(),
        "bf16": got["bf16"].tolist(),
        "strided": got["strided"].tolist(),
        "complex": got["ordered"]["c"].tolist(),
    }


@pytest.mark.parametrize("world", [1, 2, 3])
def test_gather_takes_any_structure_and_dtype_in_two_collectives(world: int) -> None:
    ranks = range(world)
    for got in run_ranks(_gather_everything, world):
        assert got["collectives"] == (2 if world > 1 else 0)
        assert got["pair"] == [[r, r] for r in ranks for _ in range(2)]
        assert got["zero_d"] == [float(r) for r in ranks]
        assert got["bool"] == [value for r in ranks for value in (r == 0, True)]
        assert got["bf16"] == [[r + 0.5] for r in ranks]
        assert got["strided"] == [[r + i, r + i + 3] for r in ranks for i in range(3)]
        assert got["complex"] == [complex(r, 1) for r in ranks]


def _gather_ragged() -> dict:
    rank = PartialState().process_index
    rows = [3, 5, 0][rank]
    data = [torch.full((rows, 4), rank), torch.ones(rows, dtype=torch.bool), torch.tensor(rank)]
    got = gather(data)
    return {
        "column": got[0][:, 0].tolist(),
        "dtype": str(got[1].dtype),
        "length": len(got[1]),
        "zero_d": got[2].tolist(),
    }


def test_gather_joins_first_dimensions_that_differ() -> None:
    for got in run_ranks(_gather_ragged, 3):
        assert got == {
            "column": [0] * 3 + [1] * 5,
            "dtype": "torch.bool",
            "length": 8,
            "zero_d": [0, 1, 2],
        }


def _mismatch(kind: str) -> None:
    rank = PartialState().process_index
    data: Any = {
        "width": torch.zeros(2, 3 + rank),
        "dtype": torch.zeros(2, dtype=[torch.float32, torch.int64][rank]),
        "structure": [torch.zeros(1)] * (rank + 1),
        "ndim": torch.zeros([1] * (rank + 1)),
        "keys": {["loss", "accuracy"][rank]: torch.zeros(1)},
        "container": [[torch.zeros(1)], {"loss": torch.zeros(1)}][rank],
    }[kind]
    gather(data)


@pytest.mark.parametrize("kind", ["width", "dtype", "structure", "ndim", "keys", "container"])
def test_what_cannot_be_gathered_is_an_error_on_every_rank_that_shows_all_shapes(kind: str) -> None:
    failures = run_ranks_failing(_mismatch, 2, kind)
    assert failures[0] == failures[1]
    name, message = failures[0]
    assert name == "DistributedOperationException"
    assert message.startswith("gather: ")
    assert "rank 0:" in message
    assert "rank 1:" in message


def _keys_in_another_order() -> dict:
    rank = PartialState().process_index
    values = {"a": torch.tensor(1.0 + rank), "b": torch.tensor(10.0 + rank)}
    rows = {"a": torch.ones(1 + rank), "b": torch.zeros(1)}
    if rank:
        values, rows = dict(reversed(values.items())), dict(reversed(rows.items()))
    padded = pad_across_processes(rows)
    ragged = gather(rows)
    return {
        "gathered": {key: value.tolist() for key, value in gather(values).items()},
        "order": list(gather(values)) == list(values),
        "reduced": {key: value.item() for key, value in reduce(values, "sum").items()},
        "padded": {key: len(value) for key, value in padded.items()},
        "ragged": {key: len(value) for key, value in ragged.items()},
        "sent": {key: value.item() for key, value in broadcast(values).items()},
    }


def test_what_is_in_mappings_belongs_together_by_key() -> None:
    for got in run_ranks(_keys_in_another_order, 2):
        assert got == {
            "gathered": {"a": [1, 2], "b": [10, 11]},
            "order": True,
            "reduced": {"a": 3, "b": 21},
            "padded": {"a": 2, "b": 1},
            "ragged": {"a": 3, "b": 2},
            "sent": {"a": 1, "b": 10},
        }


def _debug_mismatch(operation: str) -> None:
    rank = PartialState().process_index
    assert PartialState().debug
    getattr(collectives, operation)({"x": torch.zeros(2 + rank)})


@pytest.mark.parametrize("operation", ["reduce", "broadcast"])
def test_in_debug_mode_shapes_are_compared_first(operation: str) -> None:
    env = {"ACCELERATE_DEBUG_MODE": "1"}
    for name, message in run_ranks_failing(_debug_mismatch, 2, operation, env=env):
        assert name == "DistributedOperationException"
        assert message.startswith(f"{operation}: ")
        assert "((2,), 'torch.float32')" in message
        assert "((3,), 'torch.float32')" in message


def _reductions() -> dict:
    rank = PartialState().process_index
    value = torch.tensor([1.0, 2.0]) * (rank + 1)
    kept = value.clone()
    nested = reduce({"a": [value, torch.tensor(rank)]}, "sum", scale=2.0)
    assert torch.equal(value, kept)
    flag = torch.tensor([rank == 0, False])
    return {
        "nested": [nested["a"][0].tolist(), nested["a"][1].item()],
        "mean": reduce(value, "mean").tolist(),
        "default": reduce(value).tolist(),
        "min": reduce(value, "min").tolist(),
        "max": reduce(value, "max").tolist(),
        "none": reduce(value, "none").tolist() == kept.tolist(),
        "int_mean": reduce(torch.tensor([rank, 3])).tolist(),
        "bool_sum": reduce(flag, "sum").tolist(),
        "bool_max": reduce(flag, "max").tolist(),
        "strided": reduce(torch.ones(2, 3).t() * rank, "sum").tolist(),
        "bf16": str(reduce(torch.ones(1, dtype=torch.bfloat16), "sum").dtype),
    }


def test_reduce_over_two_ranks() -> None:
    for got in run_ranks(_reductions, 2):
        assert got == {
            "nested": [[6.0, 12.0], 2.0],
            "mean": [1.5, 3.0],
            "default": [1.5, 3.0],
            "min": [1.0, 2.0],
            "max": [2.0, 4.0],
            "none": True,
            "int_mean": [0.5, 3.0],
            "bool_sum": [1, 0],
            "bool_max": [True, False],
            "strided": [[1.0, 1.0]] * 3,
            "bf16": "torch.bfloat16",
        }


def test_reduce_in_one_process_gives_what_one_rank_would() -> None:
    assert reduce(torch.tensor([2.0]), "mean", scale=3.0).tolist() == [6.0]
    assert reduce(torch.tensor([2, 3]), "sum").dtype == torch.int64
    with pytest.raises(ValueError, match="reduction='men'.*Did you mean 'mean'"):
        reduce(torch.ones(1), "men")


def _broadcasts() -> dict:
    rank = PartialState().process_index
    strided = (torch.arange(4).reshape(2, 2) * (rank + 1)).t()
    objects = broadcast_object_list([{"rank": rank}, rank], from_process=1)
    return {
        "tensors": [t.tolist() for t in broadcast([torch.tensor(rank), strided], from_process=1)],
        "objects": objects,
        "gathered": gather_object([f"r{rank}", rank]),
        "single": gather_object({"rank": rank}),
        "uneven": gather_object(list(range(rank))),
    }


def test_broadcast_and_objects_over_two_ranks() -> None:
    for got in run_ranks(_broadcasts, 2):
        assert got == {
            "tensors": [1, [[0, 4], [2, 6]]],
            "objects": [{"rank": 1}, 1],
            "gathered": ["r0", 0, "r1", 1],
            "single": [{"rank": 0}, {"rank": 1}],
            "uneven": [0],
        }


def _padding() -> dict:
    rank = PartialState().process_index
    x = torch.full((rank + 1, 2), rank + 1)
    mask = torch.ones(2, rank + 1, dtype=torch.bool)
    got = pad_across_processes({"x": x, "scalar": torch.tensor(5)}, pad_index=-1)
    first = pad_across_processes(x, pad_first=True)
    return {
        "x": got["x"].tolist(),
        "scalar": got["scalar"].item(),
        "first": first.tolist(),
        "mask": pad_across_processes(mask, dim=1).tolist(),
        "negative": pad_across_processes(mask, dim=-1).dtype == torch.bool,
    }


def test_pad_across_processes_evens_out_one_dimension_and_keeps_the_dtype() -> None:
    first, second = run_ranks(_padding, 2)
    assert first["x"] == [[1, 1], [-1, -1]]
    assert first["first"] == [[0, 0], [1, 1]]
    assert first["mask"] == [[True, False], [True, False]]
    assert second["x"] == second["first"] == [[2, 2], [2, 2]]
    assert first["scalar"] == second["scalar"] == 5
    assert first["negative"]


def _bad_padding() -> None:
    pad_across_processes(torch.ones([1] * (PartialState().process_index + 1)))


def _bad_list() -> None:
    PartialState()
    broadcast_object_list((1,))


def test_what_cannot_be_padded_or_replaced_is_an_error_on_every_rank() -> None:
    for name, message in run_ranks_failing(_bad_padding, 2):
        assert name == "DistributedOperationException"
        assert "pad_across_processes: " in message
    for name, message in run_ranks_failing(_bad_list, 2):
        assert name == "TypeError"
        assert message.startswith("object_list is a tuple: write")


def test_pad_input_tensors_makes_a_batch_divide() -> None:
    batch = {"x": torch.arange(5), "y": torch.tensor(1)}
    padded = pad_input_tensors(batch, batch_size=5, num_processes=3)
    assert padded["x"].tolist() == [0, 1, 2, 3, 4, 4]
    assert padded["y"].item() == 1
    assert pad_input_tensors(batch, 5, 5)["x"].tolist() == [0, 1, 2, 3, 4]


def test_in_one_process_tensors_come_back_and_objects_are_listed() -> None:
    x = torch.ones(2)
    assert gather(x) is x
    assert gather(torch.tensor(1.0)).shape == (1,)
    assert broadcast(x) is x
    assert pad_across_processes(x) is x
    assert gather_object("a") == ["a"]
    with pytest.raises(TypeError, match="str is not supported here"):
        gather(["text"])
