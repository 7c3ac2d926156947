"""Collectives over nested structures of tensors: gather, reduce, broadcast, pad.

A gather of any structure takes at most two collectives. The first exchanges a header of fixed size
between CPUs: a digest of the structure with its dtypes and shapes. Where all agree, everything is
packed into one exchange of bytes. Where they do not, each rank learns what the others hold, and the
tensors are gathered all the same if they differ in their first dimension alone; else every rank
raises the same error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from rankzero.config.choices import unknown_choice
from rankzero.distributed.nested import (
    get_data_structure,
    in_key_order,
    leaves,
    recursively_apply,
)
from rankzero.distributed.state import PartialState

REDUCTIONS = ("mean", "sum", "min", "max", "none")


class DistributedOperationException(RuntimeError):
    """Ranks brought tensors that do not fit together into one collective."""


def _alone() -> bool:
    return PartialState().num_processes == 1


def gather(tensor: Any) -> Any:
    """Concatenate each tensor of a structure over ranks, along dimension 0, in order of rank.

    Args:
        tensor: A structure of tensors of any dtype. 0-d tensors become 1-d, one element a rank.
            First dimensions may differ between ranks.

    Returns:
        The same structure on every rank, of contiguous tensors on the device they came from.

    Raises:
        TypeError: something other than a tensor (see ``gather_object``).
        DistributedOperationException: on every rank, where structures, dtypes or other dimensions
            differ; the message shows what each rank holds.
    """
    recursively_apply(lambda t: t, tensor, error_on_other_type=True)
    if _alone():
        return recursively_apply(lambda t: t.reshape(1) if t.ndim == 0 else t, tensor)
    tensors = [t.detach().reshape(1) if t.ndim == 0 else t.detach() for t in leaves(tensor)]
    if _all_alike(tensor):
        gathered = _gather_packed(tensors)
    else:
        gathered = _gather_ragged(tensors, _rows_of_all("gather", tensor))
    return _fill(tensor, gathered)


def _fill(structure: Any, values: list[torch.Tensor]) -> Any:
    """Return the structure with its tensors replaced in order."""
    remaining = iter(values)
    return recursively_apply(lambda _: next(remaining), structure)


def _all_alike(data: Any) -> bool:
    """Tell, on every rank alike, whether all hold the same structure, dtypes and shapes."""
    text = repr(_outline(data)).encode()
    digest = hashlib.blake2b(text, digest_size=16).digest()
    # Both signs of the digest, so that one maximum finds any rank that differs.
    mine = torch.frombuffer(bytearray(digest), dtype=torch.int32).to(torch.int64)
    header = torch.cat([mine, -mine])
    dist.all_reduce(header, op=dist.ReduceOp.MAX)
    return bool(torch.equal(header[:4], -header[4:]))


def _outline(data: Any, rows: bool = True) -> Any:
    """Return kinds of containers, keys, shapes and dtypes; the same for what goes together.

    Args:
        data: A structure of tensors.
        rows: Whether first dimensions count. Without them a 0-d tensor is like a 1-d one.
    """
    if isinstance(data, torch.Tensor):
        return tuple(data.shape if rows else data.shape[1:]), str(data.dtype)
    if isinstance(data, Mapping):
        return "mapping", [(repr(key), _outline(data[key], rows)) for key in in_key_order(data)]
    if isinstance(data, (list, tuple)):
        kind = "list" if isinstance(data, list) else "tuple"
        return kind, [_outline(item, rows) for item in data]
    return type(data).__name__


def _rows_of_all(operation: str, data: Any) -> list[list[int]]:
    """Return, for each rank, the first dimension of each tensor (1 for a 0-d one).

    Raises:
        DistributedOperationException: on every rank, where something else differs.
    """
    rows = [tensor.shape[0] if tensor.ndim else 1 for tensor in leaves(data)]
    mine = (rows, repr(_outline(data, rows=False)), get_data_structure(data))
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    if len({outline for _, outline, _ in everyone}) > 1:
        raise mismatch(operation, [structure for _, _, structure in everyone])
    return [rows for rows, _, _ in everyone]


def mismatch(operation: str, everyone: list[Any]) -> DistributedOperationException:
    """Build the error that shows what each rank brought to ``operation``."""
    lines = "".join(f"\n  rank {rank}: {held}" for rank, held in enumerate(everyone))
    return DistributedOperationException(
        f"{operation}: ranks hold tensors that do not fit together. Shapes and dtypes by rank:{lines}"
        "\nBring the same structure on every rank; pad_across_processes evens out a dimension."
    )


def _gather_packed(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Gather tensors that are alike on all ranks, in one exchange a device."""
    world = dist.get_world_size()
    results: list[torch.Tensor] = [torch.empty(0)] * len(tensors)
    for device in {tensor.device for tensor in tensors}:
        places = [i for i, tensor in enumerate(tensors) if tensor.device == device]
        packed = torch.cat([_to_bytes(tensors[i]) for i in places])
        received = torch.empty(world, packed.numel(), dtype=torch.uint8, device=device)
        if packed.numel():
            dist.all_gather(list(received.unbind(0)), packed)
        start = 0
        for i in places:
            like, size = tensors[i], tensors[i].numel() * tensors[i].element_size()
            block = received[:, start : start + size].reshape(-1)
            results[i] = _from_bytes(block, like, world * like.shape[0])
            start += size
    return results


def _gather_ragged(tensors: list[torch.Tensor], rows_of_all: list[list[int]]) -> list[torch.Tensor]:
    """Gather tensors whose first dimensions differ: padded to the longest, then cut."""
    results = []
    for tensor, rows in zip(tensors, zip(*rows_of_all, strict=True), strict=True):
        padded = tensor.new_zeros((max(rows), *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        whole = _gather_packed([padded])[0].reshape(len(rows), max(rows), *tensor.shape[1:])
        results.append(torch.cat([whole[rank, :count] for rank, count in enumerate(rows)]))
    return results


def _to_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's memory as uint8, shape (bytes,); no backend has to know its dtype."""
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _from_bytes(block: torch.Tensor, like: torch.Tensor, rows: int) -> torch.Tensor:
    """Return bytes as a tensor of the dtype of ``like``, with ``rows`` rows."""
    return block.clone().view(like.dtype).reshape(rows, *like.shape[1:])


def gather_object(object: Any) -> list[Any]:  # noqa: A002 - the name that scripts use
    """Gather any picklable objects: each rank's list is joined to one list, in order of rank.

    Args:
        object: A list; what is none counts as a list of one.
    """
    items = list(object) if isinstance(object, (list, tuple)) else [object]
    if _alone():
        return items
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, items)
    return [item for part in everyone for item in part]


def broadcast(tensor: Any, from_process: int = 0) -> Any:
    """Return, on every rank, the tensors that rank ``from_process`` holds.

    Tensors of the other ranks give structure, shape and dtype, and are overwritten.
    """
    if _alone():
        return tensor
    _check_in_debug("broadcast", tensor)

    def send(value: torch.Tensor) -> torch.Tensor:
        whole = value.detach().contiguous()
        dist.broadcast(whole, src=from_process)
        if whole.data_ptr() != value.data_ptr():
            with torch.no_grad():
                value.copy_(whole)
        return value

    return recursively_apply(send, tensor, error_on_other_type=True)


def broadcast_object_list(object_list: Any, from_process: int = 0) -> list[Any]:
    """Replace the items of ``object_list``, in place, by those of rank ``from_process``.

    Raises:
        TypeError: it is not a list.
    """
    if not isinstance(object_list, list):
        kind = type(object_list).__name__
        raise TypeError(f"object_list is a {kind}: write a list, whose items can be replaced.")
    if not _alone():
        dist.broadcast_object_list(object_list, src=from_process)
    return object_list


def reduce(tensor: Any, reduction: str = "mean", scale: float = 1.0) -> Any:
    """Reduce each tensor of a structure over ranks.

    Args:
        tensor: Tensors of one shape and dtype on all ranks; they are left as they are.
        reduction: "mean", "sum", "min", "max", or "none", which only scales. The mean of whole
            numbers and booleans is fp32; the sum of booleans is int64.
        scale: Factor of the result; other than 1 it makes whole numbers fp32.

    Raises:
        ValueError: another reduction.
    """
    if reduction not in REDUCTIONS:
        raise unknown_choice("reduction", reduction, REDUCTIONS)
    if not _alone():
        _check_in_debug("reduce", tensor)
    world = PartialState().num_processes

    def combine(value: torch.Tensor) -> torch.Tensor:
        result = value.detach().clone(memory_format=torch.contiguous_format)
        whole = not (result.is_floating_point() or result.is_complex())
        if result.dtype == torch.bool and reduction in ("mean", "sum"):
            result = result.long()
        if world > 1 and reduction != "none":
            result = _all_reduce(result, "sum" if reduction == "mean" else reduction)
        if whole and (reduction == "mean" or scale != 1.0):
            result = result.float()
        if reduction == "mean":
            result = result / world
        return result if scale == 1.0 else result * scale

    return recursively_apply(combine, tensor, error_on_other_type=True)


def _all_reduce(tensor: torch.Tensor, operation: str) -> torch.Tensor:
    operations = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
    if tensor.dtype == torch.bool:
        carried = tensor.to(torch.uint8)
        dist.all_reduce(carried, op=operations[operation])
        return carried.bool()
    dist.all_reduce(tensor, op=operations[operation])
    return tensor


def pad_across_processes(
    tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False
) -> Any:
    """Pad each tensor along ``dim`` to its longest size over ranks.

    Args:
        tensor: A structure of tensors; one without such a dimension is left as it is.
        dim: The dimension to even out; negative ones count from the last.
        pad_index: The value to fill with; the dtype stays.
        pad_first: Put the filling before the data instead of after it.
    """
    if _alone():
        return tensor
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, [tuple(t.shape) for t in leaves(tensor)])
    if len({tuple(map(len, shapes)) for shapes in everyone}) > 1:
        raise mismatch("pad_across_processes", everyone)
    index = iter(range(len(everyone[0])))

    def pad(value: torch.Tensor) -> torch.Tensor:
        i = next(index)
        if not -value.ndim <= dim < value.ndim:
            return value
        longest = max(shapes[i][dim] for shapes in everyone)
        size = value.shape[dim]
        if size == longest:
            return value
        shape = list(value.shape)
        shape[dim] = longest
        padded = value.new_full(shape, pad_index)
        padded.narrow(dim, longest - size if pad_first else 0, size).copy_(value)
        return padded

    return recursively_apply(pad, tensor, error_on_other_type=True)


def pad_input_tensors(tensor: Any, batch_size: int, num_processes: int, dim: int = 0) -> Any:
    """Repeat the last element along ``dim`` so that ``batch_size`` divides among the processes."""
    missing = -batch_size % num_processes

    def pad(value: torch.Tensor) -> torch.Tensor:
        if value.ndim == 0 or value.shape[dim] != batch_size or missing == 0:
            return value
        last = value.narrow(dim, batch_size - 1, 1)
        return torch.cat([value, *[last] * missing], dim=dim)

    return recursively_apply(pad, tensor, error_on_other_type=True)


def _check_in_debug(operation: str, data: Any) -> None:
    """In debug mode raise on every rank where structures, shapes or dtypes differ."""
    if PartialState().debug and not _all_alike(data):
        everyone: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everyone, get_data_structure(data))
        raise mismatch(operation, everyone)
