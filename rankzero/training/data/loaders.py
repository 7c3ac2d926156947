"""A loader divided between the ranks: the user's DataLoader, with this rank's part of each epoch."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, RandomSampler

from rankzero.distributed.nested import send_to_device
from rankzero.distributed.random import synchronize_rng_states
from rankzero.distributed.state import GradientState, PartialState
from rankzero.training.data.order import (
    generators_of,
    has_fixed_order,
    order_of_rank_zero,
    share_generator_states,
)
from rankzero.training.data.samplers import BatchSamplerShard, ItemShard, SeedableRandomSampler
from rankzero.training.data.sharding import ShortStep
from rankzero.training.data.streams import (
    CountedBatch,
    CountedCollate,
    IterableDatasetShard,
    divides_itself,
    generator_of,
)

# What a DataLoader is made with, besides what is divided, under the names that it keeps them by.
KEPT_ARGUMENTS = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "in_order",
)


class DataLoaderShard(DataLoader[Any]):
    """A DataLoader whose batches are this rank's, and arrive on this rank's device.

    Args:
        dataset: As of ``torch.utils.data.DataLoader``.
        device: Where batches are brought; None: they stay where they are.
        rng_types: Generators taken from rank 0 at the start of each epoch; None: the sampler's.
        synchronized_generator: The generator that "generator" in ``rng_types`` means.
        skip_batches: Of a later version; raises unless 0.
        use_stateful_dataloader: Of a later version; raises unless False.
        _drop_last: Whether an incomplete last step is left out.
        _non_blocking: Do not wait for copies to the device.
        torch_device_mesh: Of a later version; raises unless None.
        iteration: Number of the first epoch.
        kwargs: As of ``torch.utils.data.DataLoader``.

    Attributes:
        end_of_dataloader: True from the moment that the last batch is given.
        short_step: What the ranks hold in the last step, where it is short of real samples.
        iteration: Number of epochs begun.
    """

    def __init__(
        self,
        dataset: Any,
        device: torch.device | None = None,
        rng_types: Sequence[Any] | None = None,
        synchronized_generator: torch.Generator | None = None,
        skip_batches: int = 0,
        use_stateful_dataloader: bool = False,
        _drop_last: bool = False,
        _non_blocking: bool = False,
        torch_device_mesh: Any = None,
        iteration: int = 0,
        **kwargs: Any,
    ) -> None:
        refuse_later_options(
            skip_batches=skip_batches or None,
            use_stateful_dataloader=use_stateful_dataloader or None,
            torch_device_mesh=torch_device_mesh,
        )
        super().__init__(dataset, **kwargs)
        self.device = device
        self.rng_types = rng_types
        self.synchronized_generator = synchronized_generator
        self.gradient_state = GradientState()
        self.iteration = iteration
        self.end_of_dataloader = False
        self.short_step: ShortStep | None = None
        self._drop_last = _drop_last
        self._non_blocking = _non_blocking

    @property
    def remainder(self) -> int:
        """Number of real samples over all ranks in the last step, once it is there and short.

        0 where the last step is full; -1 before it, and where samples cannot be counted.
        """
        if not self.end_of_dataloader:
            return -1
        if self.short_step is None:
            return 0
        return -1 if self.short_step.samples is None else self.short_step.samples

    @property
    def total_batch_size(self) -> int:
        """Number of samples of all ranks in a full step."""
        divided = self._divided
        if divided is None:
            return self.batch_size or 1
        size = divided.batch_size or 1
        return size if divided.split_batches else size * divided.num_processes

    @property
    def total_dataset_length(self) -> int:
        """Number of samples of the dataset, before it is divided."""
        return int(getattr(self.dataset, "total_length", None) or len(self.dataset))  # type: ignore[arg-type]

    @property
    def _divided(self) -> Any:
        """What divides the epoch: a batch sampler, a sampler or a dataset; None on one rank."""
        for part in (self.batch_sampler, self._index_sampler, self.dataset):
            if isinstance(part, (BatchSamplerShard, IterableDatasetShard)):
                return part
        return None

    def get_sampler(self) -> Any:
        """Return the innermost sampler."""
        return get_sampler(self)

    def set_sampler(self, sampler: Any) -> None:
        """Replace the innermost sampler."""
        holder: Any = self.batch_sampler
        while isinstance(getattr(holder, "batch_sampler", None), BatchSampler):
            holder = holder.batch_sampler
        if holder is None:
            object.__setattr__(self, "sampler", sampler)
        else:
            holder.sampler = sampler

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; passed on to the sampler and the dataset."""
        self.iteration = epoch
        for part in (self.batch_sampler, self.get_sampler(), self.dataset):
            if hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def _begin(self) -> None:
        """Start an epoch: bring the ranks into step, and become the loop's innermost loader."""
        self.end_of_dataloader = False
        self.short_step = None
        self.set_epoch(self.iteration)
        state = PartialState()
        if state.num_processes > 1:
            kinds = [kind for kind in self.rng_types or () if str(kind) != "generator"]
            synchronize_rng_states(kinds)
            held = generator_of(getattr(self.dataset, "dataset", None))
            if isinstance(self.dataset, IterableDatasetShard) and held is not None:
                share_generator_states([held], state.process_index)
        self.gradient_state._add_dataloader(self)  # noqa: SLF001
        self.iteration += 1

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Give this rank's batches, read one ahead to know the last one."""
        self._begin()
        try:
            batches = super().__iter__()
            try:
                upcoming = next(batches)
            except StopIteration:
                return
            while True:
                current = upcoming
                try:
                    upcoming = next(batches)
                except StopIteration:
                    self.end_of_dataloader = True
                if isinstance(current, CountedBatch):
                    current, counted = current
                else:
                    counted = getattr(self._divided, "short_step", None)
                if self.end_of_dataloader:
                    self.short_step = counted
                yield current if self._is_there(current) else self._bring(current)
                if self.end_of_dataloader:
                    return
        finally:
            self.gradient_state._remove_dataloader(self)  # noqa: SLF001

    def _is_there(self, batch: Any) -> bool:
        """Tell quickly whether a batch needs no move: the usual case on the CPU."""
        if self.device is None:
            return True
        if self.device.type != "cpu" or type(batch) not in (list, tuple):
            return False
        return all(type(item) is torch.Tensor and item.is_cpu for item in batch)

    def _bring(self, batch: Any) -> Any:
        """Return the batch on this rank's device."""
        assert self.device is not None  # noqa: S101 - see _is_there
        return send_to_device(batch, self.device, non_blocking=self._non_blocking)


def get_sampler(dataloader: Any) -> Any:
    """Return the innermost sampler of a loader; None for an iterable dataset."""
    if isinstance(getattr(dataloader, "dataset", None), IterableDataset):
        return None
    holder: Any = dataloader.batch_sampler
    if holder is None:
        holder = dataloader.sampler
        return holder.sampler if isinstance(holder, ItemShard) else holder
    while getattr(holder, "batch_sampler", None) is not None:
        holder = holder.batch_sampler
    return getattr(holder, "sampler", holder)


def refuse_later_options(**options: Any) -> None:
    """Raise for the first option of a later version that is set."""
    for name, value in options.items():
        if value is not None:
            raise NotImplementedError(
                f"{name}={value!r}: this version of rankzero does not act on {name}; leave it out."
            )


def prepare_data_loader(
    dataloader: DataLoader[Any],
    device: torch.device | None = None,
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
    """Return a loader that gives this rank's part of what ``dataloader`` gives.

    Args:
        dataloader: Map-style or iterable, with any sampler or batch sampler. An iterable dataset
            is read whole on every rank, which keeps its part.
        device: Where batches are brought, with ``put_on_device``.
        num_processes: Number of ranks; None: that of the process group.
        process_index: This rank; None: that in the process group.
        split_batches: Cut the loader's batches between the ranks instead of dealing whole ones.
        put_on_device: Bring batches to ``device``.
        rng_types: Generators taken from rank 0 at each epoch; None: the sampler's.
        dispatch_batches: True is of a later version, and raises.
        even_batches: Repeat samples so that all ranks have equally many full batches.
        slice_fn_for_dispatch: Of a later version; raises unless None.
        use_seedable_sampler: Shuffle from (``data_seed``, epoch) alone.
        data_seed: That seed; None: the one torch was seeded with.
        non_blocking: Do not wait for copies to the device.
        use_stateful_dataloader: Of a later version; raises unless False.
        torch_device_mesh: Of a later version; raises unless None.

    Raises:
        ValueError: a batch that cannot be split between the ranks.
        NotImplementedError: an option of a later version.
    """
    refuse_later_options(
        dispatch_batches=dispatch_batches or None,
        slice_fn_for_dispatch=slice_fn_for_dispatch,
        use_stateful_dataloader=use_stateful_dataloader or None,
        torch_device_mesh=torch_device_mesh,
    )
    state = PartialState()
    world = state.num_processes if num_processes is None else num_processes
    rank = state.process_index if process_index is None else process_index
    if use_seedable_sampler:
        _make_seedable(dataloader, data_seed)
    kept = _kept_arguments(dataloader)
    if isinstance(dataloader.dataset, IterableDataset):
        parts = _divide_stream(dataloader, kept, world, rank, split_batches, even_batches)
    else:
        parts = _divide_samples(dataloader, world, rank, split_batches, even_batches)
        divided = parts.get("batch_sampler", parts.get("sampler"))
        shares = rng_types is None or "generator" in map(str, rng_types)
        if world > 1 and shares and not has_fixed_order(divided):
            divided.first_draw = functools.partial(order_of_rank_zero, divided, rank)
    generators = generators_of(get_sampler(dataloader))
    return DataLoaderShard(
        parts.pop("dataset", dataloader.dataset),
        device=device if put_on_device else None,
        rng_types=rng_types,
        synchronized_generator=generators[0] if generators else None,
        _drop_last=dataloader.drop_last,
        _non_blocking=non_blocking,
        **{**kept, **parts},
    )


def _kept_arguments(loader: DataLoader[Any]) -> dict[str, Any]:
    """Return what the loader was made with, besides what is divided."""
    kept = {name: getattr(loader, name) for name in KEPT_ARGUMENTS if hasattr(loader, name)}
    if loader.num_workers > 0:
        kept["multiprocessing_context"] = loader.multiprocessing_context
    if getattr(loader, "pin_memory_device", ""):
        kept["pin_memory_device"] = loader.pin_memory_device
    return kept


def _divide_samples(
    loader: DataLoader[Any], world: int, rank: int, split_batches: bool, even_batches: bool
) -> dict[str, Any]:
    """Return the batch sampler, or without batches the sampler, of this rank."""
    if loader.batch_sampler is None:
        sampler: Any = loader.sampler
        if world > 1:
            sampler = ItemShard(sampler, world, rank, even_batches)
        return {"batch_size": None, "sampler": sampler}
    batch_sampler: Any = loader.batch_sampler
    if world > 1:
        batch_sampler = BatchSamplerShard(batch_sampler, world, rank, split_batches, even_batches)
    return {"batch_sampler": batch_sampler}


def _divide_stream(
    loader: DataLoader[Any],
    kept: dict[str, Any],
    world: int,
    rank: int,
    split_batches: bool,
    even_batches: bool,
) -> dict[str, Any]:
    """Return the dataset, batch size and collate function of this rank."""
    if world == 1 or divides_itself(loader.dataset, world):
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    shard = IterableDatasetShard(
        loader.dataset,
        batch_size=loader.batch_size or 1,
        drop_last=loader.drop_last,
        num_processes=world,
        process_index=rank,
        split_batches=split_batches and loader.batch_size is not None,
        even_batches=even_batches,
    )
    return {
        "dataset": shard,
        "batch_size": None if loader.batch_size is None else shard.share,
        "drop_last": loader.drop_last,
        "collate_fn": CountedCollate(kept["collate_fn"], shard),
    }


def _make_seedable(loader: DataLoader[Any], data_seed: int | None) -> None:
    """Give the loader, in place of a random sampler, one that a seed and the epoch decide."""
    sampler = get_sampler(loader)
    if type(sampler) is not RandomSampler:
        return
    seedable = SeedableRandomSampler(
        sampler.data_source,
        replacement=sampler.replacement,
        num_samples=sampler._num_samples,  # noqa: SLF001
        generator=sampler.generator,
        data_seed=data_seed,
    )
    holder: Any = loader.batch_sampler
    if holder is None:
        object.__setattr__(loader, "sampler", seedable)
        return
    with contextlib.suppress(AttributeError):
        holder.sampler = seedable
