"""Walking nested structures: lists, tuples, namedtuples, dicts and other mappings of tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

HALF_TYPES = (torch.float16, torch.bfloat16)


def is_torch_tensor(value: Any) -> bool:
    """Tell whether ``value`` is a tensor."""
    return isinstance(value, torch.Tensor)


def is_namedtuple(value: Any) -> bool:
    """Tell whether ``value`` is a tuple whose items have names."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def honor_type(obj: Any, generator: Any) -> Any:
    """Make a sequence of the type of ``obj`` from the items of ``generator``."""
    return type(obj)(*generator) if is_namedtuple(obj) else type(obj)(generator)


def listify(data: Any) -> Any:
    """Turn every tensor and array in a structure into nested lists of Python numbers."""
    return recursively_apply(
        lambda value: value.detach().cpu().tolist() if is_torch_tensor(value) else value.tolist(),
        data,
        test_type=lambda value: is_torch_tensor(value) or type(value).__module__ == "numpy",
    )


def recursively_apply(
    func: Callable[..., Any],
    data: Any,
    *args: Any,
    test_type: Callable[[Any], bool] = is_torch_tensor,
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Any:
    """Apply ``func`` to each leaf that ``test_type`` accepts; the structure's types are kept.

    Mappings are walked in the order of their keys (``in_key_order``), and keep their own.

    Args:
        func: Called as ``func(leaf, *args, **kwargs)``.
        data: Lists, tuples, namedtuples and mappings, nested in any way.
        args: Passed on.
        test_type: Chooses the leaves; others stay as they are.
        error_on_other_type: Raise for a leaf that is not chosen.
        kwargs: Passed on.

    Raises:
        TypeError: a leaf of another type, where asked for.
    """

    def walk(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return honor_type(value, (walk(item) for item in value))
        if isinstance(value, Mapping):
            walked = {key: walk(value[key]) for key in in_key_order(value)}
            items = {key: walked[key] for key in value}
            return items if type(value) is dict else _mapping_like(value, items)
        if test_type(value):
            return func(value, *args, **kwargs)
        if error_on_other_type:
            raise TypeError(
                f"{type(value).__name__} is not supported here: pass tensors, or lists, tuples and "
                "dicts of them."
            )
        return value

    return walk(data)


def in_key_order(mapping: Mapping[Any, Any]) -> list[Any]:
    """Return the keys in an order that does not depend on how they were put in.

    Ranks may have put the same keys in in different orders; what they exchange belongs together by
    key.
    """
    return sorted(mapping, key=lambda key: (type(key).__name__, repr(key)))


def _mapping_like(mapping: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """Make a mapping of the same type; one whose constructor takes no dict becomes a dict."""
    try:
        return type(mapping)(items)  # type: ignore[call-arg]
    except TypeError:
        return items


def leaves(data: Any, test_type: Callable[[Any], bool] = is_torch_tensor) -> list[Any]:
    """Return the chosen leaves of a structure, in order."""
    found: list[Any] = []
    recursively_apply(found.append, data, test_type=test_type)
    return found


def send_to_device(
    tensor: Any,
    device: torch.device | str | int,
    non_blocking: bool = False,
    skip_keys: str | list[str] | None = None,
) -> Any:
    """Move every tensor of a structure to ``device``.

    Objects that have a ``to(device)`` method of their own (a batch of tokens, say) are moved by it.

    Args:
        tensor: The structure.
        device: Where to.
        non_blocking: Do not wait for copies from pinned memory.
        skip_keys: Keys of mappings whose values stay where they are.
    """
    if isinstance(tensor, torch.Tensor):
        return tensor.to(device, non_blocking=non_blocking)
    skipped = {skip_keys} if isinstance(skip_keys, str) else set(skip_keys or ())
    if isinstance(tensor, (list, tuple)):
        return honor_type(
            tensor, (send_to_device(item, device, non_blocking, skip_keys) for item in tensor)
        )
    if hasattr(tensor, "to") and not isinstance(tensor, torch.nn.Module):
        try:
            return tensor.to(device, non_blocking=non_blocking)
        except TypeError:  # its method takes the device alone
            return tensor.to(device)
    if isinstance(tensor, Mapping):
        items = {
            key: item if key in skipped else send_to_device(item, device, non_blocking, skip_keys)
            for key, item in tensor.items()
        }
        return items if type(tensor) is dict else _mapping_like(tensor, items)
    return tensor


def get_data_structure(data: Any) -> Any:
    """Return the structure with each tensor replaced by its shape and dtype."""
    return recursively_apply(lambda t: (tuple(t.shape), str(t.dtype)), data)


def find_batch_size(data: Any) -> int | None:
    """Return the first dimension of the first tensor that has one; None where there is none.

    Raises:
        TypeError: there is no tensor at all.
    """
    found = leaves(data)
    if not found:
        raise TypeError(f"there is no tensor in {type(data).__name__}, so it has no batch size.")
    return next((int(tensor.shape[0]) for tensor in found if tensor.ndim), None)


def find_device(data: Any) -> torch.device | None:
    """Return the device of the first tensor; None where there is none."""
    found = leaves(data)
    return found[0].device if found else None


def slice_tensors(data: Any, tensor_slice: slice) -> Any:
    """Cut each tensor along its first dimension."""
    return recursively_apply(lambda tensor: tensor[tensor_slice], data)


def concatenate(data: Any, dim: int = 0) -> Any:
    """Concatenate structures of one kind, tensor by tensor.

    Args:
        data: A list of structures.
        dim: The dimension to join along.

    Raises:
        TypeError: something that is not a tensor.
    """
    first = data[0]
    if isinstance(first, (list, tuple)):
        return honor_type(
            first, (concatenate([d[i] for d in data], dim=dim) for i in range(len(first)))
        )
    if isinstance(first, Mapping):
        items = {key: concatenate([d[key] for d in data], dim=dim) for key in first}
        return items if type(first) is dict else _mapping_like(first, items)
    if not isinstance(first, torch.Tensor):
        raise TypeError(
            f"concatenate takes tensors and structures of them, not {type(first).__name__}."
        )
    return torch.cat(list(data), dim=dim)


def convert_to_fp32(tensor: Any) -> Any:
    """Turn every fp16 and bf16 tensor of a structure into fp32; others are left as they are."""
    if isinstance(tensor, torch.Tensor):
        return tensor.float() if tensor.dtype in HALF_TYPES else tensor
    return recursively_apply(
        torch.Tensor.float,
        tensor,
        test_type=lambda value: isinstance(value, torch.Tensor) and value.dtype in HALF_TYPES,
    )
