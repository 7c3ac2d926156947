"""Walking nested structures."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple

import pytest
import torch

from rankzero.utils import (
    concatenate,
    convert_to_fp32,
    find_batch_size,
    find_device,
    get_data_structure,
    listify,
    recursively_apply,
    send_to_device,
    slice_tensors,
)

Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024


class Moves:
    """A batch that moves itself, and knows no ``non_blocking``."""

    moved_to: object = None

    def to(self, device: object) -> Moves:
        self.moved_to = device
        return self


def test_types_of_containers_are_kept() -> None:
    data = {"a": Pair(torch.ones(2), [torch.ones(1), "text"]), "b": OrderedDict(c=torch.ones(3))}
    got = recursively_apply(lambda t: t + 1, data)
    assert isinstance(got["a"], Pair)
    assert got["a"].right[1] == "text"
    assert isinstance(got["b"], OrderedDict)
    assert got["b"]["c"].tolist() == [2.0] * 3
    assert isinstance(recursively_apply(lambda t: t, UserDict(x=torch.ones(1))), UserDict)
    with pytest.raises(TypeError, match="str is not supported here"):
        recursively_apply(lambda t: t, data, error_on_other_type=True)


def test_sending_moves_tensors_and_what_moves_itself() -> None:
    batch = {"x": [torch.ones(1)], "m": Moves(), "keep": torch.ones(1), "n": None, "s": "text"}
    got = send_to_device(batch, "meta", skip_keys="keep")
    assert got["x"][0].device.type == "meta"
    assert got["m"].moved_to == "meta"
    assert got["keep"].device.type == "cpu"
    assert (got["n"], got["s"]) == (None, "text")


def test_sizes_devices_and_structures_are_found() -> None:
    data = {"loss": torch.tensor(1.0), "x": [torch.ones(4, 2)]}
    assert find_batch_size(data) == 4
    assert find_device(data) == torch.device("cpu")
    assert find_device([1]) is None
    assert get_data_structure(data)["x"] == [((4, 2), "torch.float32")]
    with pytest.raises(TypeError, match="no tensor in list"):
        find_batch_size([1])
    assert find_batch_size(torch.tensor(1)) is None


def test_concatenate_slice_and_listify() -> None:
    parts = [Pair(torch.ones(1) * i, {"x": torch.ones(2, 1) * i}) for i in range(2)]
    joined = concatenate(parts)
    assert listify(joined) == Pair([0.0, 1.0], {"x": [[0.0], [0.0], [1.0], [1.0]]})
    assert listify(slice_tensors(joined, slice(0, 1))) == Pair([0.0], {"x": [[0.0]]})
    with pytest.raises(TypeError, match="not str"):
        concatenate(["a", "b"])


def test_only_halves_become_fp32() -> None:
    data = [
        torch.ones(1, dtype=d) for d in (torch.float16, torch.bfloat16, torch.float64, torch.int8)
    ]
    types = [t.dtype for t in convert_to_fp32(data)]
    assert types == [torch.float32, torch.float32, torch.float64, torch.int8]
