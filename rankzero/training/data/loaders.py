"""From a plain loader to one rank's part of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
)

from rankzero.distributed.state import PartialState
from rankzero.training.data.order import chain_of, order_of_rank_zero
from rankzero.training.data.samplers import BatchSamplerShard, ItemShard, SeedableRandomSampler
from rankzero.training.data.shard_loader import (
    DataLoaderShard,
    ranks_meet,
    refuse_later_options,
    warn_of_seed_without_use,
)
from rankzero.training.data.sharding import check_rank, share_of_batch
from rankzero.training.data.streams import (
    CountedCollate,
    IterableDatasetShard,
    divides_itself,
    generator_of,
)

__all__ = ["DataLoaderShard", "prepare_data_loader"]


def prepare_data_loader(
    dataloader: DataLoader[Any],
    device: torch.device | str | None = None,
    num_processes: int | None = None,
    process_index: int | None = None,
    split_batches: bool = False,
    put_on_device: bool = False,
    rng_types: Sequence[Any] | None = None,
    dispatch_batches: bool | None = None,
    even_batches: bool = True,
    slice_fn_for_dispatch: Any = None,
    use_seedable_sampler: bool = False,
    data_seed: int | None = None,
    non_blocking: bool = False,
    use_stateful_dataloader: bool = False,
    torch_device_mesh: Any = None,
) -> DataLoaderShard:
    """Make of a plain loader one that gives this rank's batches, on its device.

    On one process batches, order and random numbers are those of the plain loader. On several,
    map-style datasets are divided by their sampler (see ``BatchSamplerShard``), shuffled as rank 0
    would; every rank iterates, since the order costs one small exchange an epoch. Iterable datasets
    are read by every rank, which keeps its part (see ``IterableDatasetShard``), unless
    ``dataset.already_sharded`` is true or the dataset is known to divide itself: then each rank
    gets what its own stream gives, and nothing is evened out or trimmed. A sampler that is a
    ``DistributedSampler`` over the same number of ranks is left to do its own dividing likewise.
    With ``batch_size=None`` single items are dealt to the ranks in turn.

    Args:
        dataloader: The loader. A prepared one is returned as it is.
        device: Where batches are brought if ``put_on_device``; None: the process's device.
        num_processes: Number of ranks; None: of the process group.
        process_index: This rank; None: in the process group.
        split_batches: The loader's batch is that of all ranks together, and is cut.
        put_on_device: Whether batches are brought to the device.
        rng_types: Process-wide generators brought into step before each epoch ("torch", "cuda",
            ...). The sampler's order always is; None stands for that alone: ["generator"].
        dispatch_batches: None or False. Reading on rank 0 for all is not built yet.
        even_batches: Repeat samples at the end so that all ranks have equally many full batches.
        slice_fn_for_dispatch: None; belongs to dispatching.
        use_seedable_sampler: Shuffle from ``data_seed`` and the epoch alone.
        data_seed: The seed for that; None: torch's initial seed on rank 0.
        non_blocking: Copy to the device without waiting.
        use_stateful_dataloader: False; not built yet.
        torch_device_mesh: None; not built yet.

    Raises:
        TypeError: where ``dataloader`` is no torch ``DataLoader``.
        ValueError: where a batch is to be split and can't be: names the sizes that can.
        NotImplementedError: names an option that is not built yet.
    """
    refuse_later_options(
        dispatch_batches=dispatch_batches,
        slice_fn_for_dispatch=slice_fn_for_dispatch is not None,
        use_stateful_dataloader=use_stateful_dataloader,
        torch_device_mesh=torch_device_mesh is not None,
    )
    if isinstance(dataloader, DataLoaderShard):
        return dataloader
    if not isinstance(dataloader, DataLoader):
        raise TypeError(
            f"dataloader is a {type(dataloader).__name__}: pass a torch.utils.data.DataLoader."
        )
    warn_of_seed_without_use(data_seed, use_seedable_sampler)
    if num_processes is None:
        num_processes = PartialState().num_processes
    if process_index is None:
        process_index = PartialState().process_index
    check_rank(num_processes, process_index)
    if put_on_device and device is None:
        device = PartialState().device
    division = Division(num_processes, process_index, split_batches, even_batches)
    if isinstance(dataloader.dataset, IterableDataset):
        replaced = division.of_stream(dataloader)
    else:
        replaced = division.of_map(dataloader, use_seedable_sampler, data_seed)
    generator = generator_of(dataloader.dataset) if "dataset" in replaced else None
    prepared: DataLoaderShard = DataLoaderShard.adopt(
        dataloader,
        replaced,
        device=device if put_on_device else None,
        rng_types=["generator"] if rng_types is None else list(rng_types),
        synchronized_generator=generator,
        non_blocking=non_blocking,
    )
    return prepared


class Division:
    """How one loader is divided, given the ranks and the options.

    Args:
        num_processes: Number of ranks.
        process_index: This rank.
        split_batches: Cut each batch.
        even_batches: Repeat samples so that all ranks have equally many batches.
    """

    def __init__(
        self, num_processes: int, process_index: int, split_batches: bool, even_batches: bool
    ) -> None:
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches

    def of_stream(self, loader: DataLoader[Any]) -> dict[str, Any]:
        """Return what is replaced in a loader of an iterable dataset."""
        if self.num_processes == 1 or divides_itself(loader.dataset, self.num_processes):
            return {}
        if loader.batch_size is None and self.split_batches:
            raise ValueError(SINGLE_ITEMS)
        shard = IterableDatasetShard(
            cast(IterableDataset[Any], loader.dataset),
            1 if loader.batch_size is None else loader.batch_size,
            loader.drop_last,
            self.num_processes,
            self.process_index,
            self.split_batches,
            self.even_batches,
        )
        replaced = {"dataset": shard, "collate_fn": CountedCollate(loader.collate_fn, shard)}
        if loader.batch_size is not None:
            replaced["batch_size"] = shard.share
            replaced["batch_sampler"] = BatchSampler(loader.sampler, shard.share, loader.drop_last)
        return replaced

    def of_map(
        self, loader: DataLoader[Any], use_seedable_sampler: bool, data_seed: int | None
    ) -> dict[str, Any]:
        """Return what is replaced in a loader of a map-style dataset."""
        place = "sampler" if loader.batch_sampler is None else "batch_sampler"
        index_sampler = original = getattr(loader, place)
        if use_seedable_sampler:
            index_sampler = with_seedable_sampler(index_sampler, data_seed)
        replaced: dict[str, Any] = {}
        if self.num_processes > 1 and not self._divides_itself(index_sampler):
            batches = place == "batch_sampler" or isinstance(index_sampler, BatchSampler)
            index_sampler = self._shard(index_sampler, batches)
            if self.split_batches and loader.batch_size is not None:
                replaced["batch_size"] = share_of_batch(loader.batch_size, self.num_processes, True)
        if index_sampler is not original:
            replaced[place] = index_sampler
            if use_seedable_sampler and place == "batch_sampler":
                replaced["sampler"] = chain_of(index_sampler)[-1]
        return replaced

    def _divides_itself(self, sampler: Any) -> bool:
        innermost = chain_of(sampler)[-1]
        return (
            isinstance(innermost, DistributedSampler)
            and innermost.num_replicas == self.num_processes
        )

    def _shard(self, sampler: Any, batches: bool) -> BatchSamplerShard:
        where = (self.num_processes, self.process_index)
        if batches:
            shard = BatchSamplerShard(sampler, *where, self.split_batches, self.even_batches)
        elif self.split_batches:
            raise ValueError(SINGLE_ITEMS)
        else:
            shard = ItemShard(sampler, *where, self.even_batches)
        if ranks_meet(self.num_processes):
            shard.first_draw = partial(order_of_rank_zero, shard, self.process_index)
        return shard


SINGLE_ITEMS = (
    "split_batches=True cuts batches, and a loader with batch_size=None gives single items: use "
    "split_batches=False, or give the loader a batch_size."
)


def with_seedable_sampler(index_sampler: Any, data_seed: int | None) -> Any:
    """Return ``index_sampler`` with its RandomSampler made seedable; as it is where it has none."""
    if type(index_sampler) is RandomSampler:
        return SeedableRandomSampler(
            index_sampler.data_source,
            replacement=index_sampler.replacement,
            num_samples=index_sampler._num_samples,  # noqa: SLF001
            generator=index_sampler.generator,
            data_seed=data_seed,
        )
    inner = getattr(index_sampler, "sampler", None)
    if type(inner) is not RandomSampler:
        return index_sampler
    changed = copy.copy(index_sampler)
    changed.sampler = with_seedable_sampler(inner, data_seed)
    return changed
