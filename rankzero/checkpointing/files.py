"""Writing and reading single files: to a temporary name, then renamed, so none is ever half."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from rankzero.distributed.state import PartialState


def save(
    obj: Any, f: Any, save_on_each_node: bool = False, safe_serialization: bool = False
) -> None:
    """Write ``obj`` to ``f`` on the main process, or on the first rank of each node.

    Args:
        obj: Anything that ``torch.save`` takes; with ``safe_serialization`` a dict of tensors.
        f: A path, whose folders are made, or an open binary file.
        save_on_each_node: For nodes that share no disk.
        safe_serialization: Write safetensors instead of torch's pickled format.

    Raises:
        TypeError: ``safe_serialization`` with something other than a dict of tensors.
    """
    state = PartialState()
    writes = state.is_local_main_process if save_on_each_node else state.is_main_process
    if not writes:
        return
    if safe_serialization:
        obj = _as_safetensors(obj)
    if not isinstance(f, (str, os.PathLike)):
        f.write(obj) if safe_serialization else torch.save(obj, f)
        return
    path = Path(f)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(obj) if safe_serialization else torch.save(obj, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _as_safetensors(obj: Any) -> bytes:
    """Return the safetensors encoding of a dict of tensors, shared memory stored once a name."""
    from safetensors.torch import save as encode

    if not isinstance(obj, Mapping) or not all(isinstance(v, torch.Tensor) for v in obj.values()):
        raise TypeError(
            f"safe_serialization=True stores a dict of tensors, not {type(obj).__name__} with "
            "other values: pass model.state_dict(), or leave safe_serialization out."
        )
    seen: set[int] = set()
    tensors = {}
    for name, tensor in obj.items():
        value = tensor.detach().contiguous()
        pointer = value.untyped_storage().data_ptr()
        tensors[str(name)] = value.clone() if pointer in seen else value
        seen.add(pointer)
    return bytes(encode(tensors, metadata={"format": "pt"}))


def load(f: Any, map_location: Any = None, **kwargs: Any) -> Any:
    """Read what ``save`` wrote: safetensors by the ending of the name, else by ``torch.load``."""
    if isinstance(f, (str, os.PathLike)) and Path(f).suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(str(f), device=str(map_location or "cpu"))
    return torch.load(f, map_location=map_location, **{"weights_only": True, **kwargs})
