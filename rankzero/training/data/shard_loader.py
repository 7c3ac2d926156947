"""The prepared loader: one rank's part, on its device, that knows when it gives its last batch."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from rankzero.distributed.nested import send_to_device
from rankzero.distributed.random import synchronize_rng_states
from rankzero.distributed.state import GradientState
from rankzero.training.data.order import chain_of, share_generator_states
from rankzero.training.data.samplers import BatchSamplerShard, ItemShard, SeedableRandomSampler
from rankzero.training.data.sharding import ShardPlan, ShortStep
from rankzero.training.data.streams import CountedBatch, IterableDatasetShard

# Samplers that give as many samples as their length says.
HONEST_LENGTH = (
    SequentialSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
    SeedableRandomSampler,
    range,
    list,
    tuple,
)


class DataLoaderShard(DataLoader[Any]):
    """A torch ``DataLoader`` that gives one rank's batches, for use inside a training loop.

    It is registered with ``GradientState`` while it is iterated, and publishes there where the
    loop stands. ``prepare_data_loader`` makes it from a plain loader, with all of its settings.

    Args:
        dataset: The dataset.
        device: Where batches are brought; None: they stay where they are.
        rng_types: Generators brought into step with rank 0 before each epoch, besides the sampler's.
        synchronized_generator: One more generator to bring into step.
        skip_batches: Belongs to resuming, which is not built yet: 0.
        use_stateful_dataloader: Not built yet: False.
        _drop_last: Whether an incomplete last batch is left out; where ``drop_last`` isn't given.
        _non_blocking: Copy to the device without waiting.
        torch_device_mesh: Not built yet: None.
        iteration: Number of the epoch that the next iteration gives.
        **kwargs: The arguments of ``torch.utils.data.DataLoader``.

    Attributes:
        end_of_dataloader: True from the time the last batch is given.
        remainder: Number of real samples in the last step over all ranks where it has fewer than
            ``total_batch_size``; 0 where nothing is to be trimmed; -1 where it isn't known (a
            stream before its end).
        short_step: What the ranks hold in the present step, where it is short of real samples.
        iteration: Number of the epoch: how often iteration has ended, or what ``set_epoch`` said.
    """

    def __init__(
        self,
        dataset: Any,
        device: torch.device | str | None = None,
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
            skip_batches=skip_batches,
            use_stateful_dataloader=use_stateful_dataloader,
            torch_device_mesh=torch_device_mesh,
        )
        super().__init__(dataset, **kwargs)
        self._set_up(device, rng_types, synchronized_generator, _non_blocking, iteration)
        self._drop_last = _drop_last or self.drop_last

    def _set_up(
        self,
        device: torch.device | str | None = None,
        rng_types: Sequence[Any] | None = None,
        synchronized_generator: torch.Generator | None = None,
        non_blocking: bool = False,
        iteration: int = 0,
    ) -> None:
        self.device = None if device is None else torch.device(device)
        self.rng_types = rng_types
        self.synchronized_generator = synchronized_generator
        self.iteration = iteration
        self.gradient_state = GradientState()
        self.end_of_dataloader = False
        self.remainder = -1
        self.short_step: ShortStep | None = None
        self._non_blocking = non_blocking
        self._drop_last = bool(self.drop_last)
        self._turn: object | None = None

    @classmethod
    def adopt(cls, loader: DataLoader[Any], replaced: dict[str, Any], **settings: Any) -> Any:
        """Make a prepared loader with everything that ``loader`` was made with.

        Args:
            loader: The loader; it stays as it is. What its class adds to ``DataLoader`` is kept.
            replaced: Attributes (``batch_sampler``, ``dataset``, ...) that differ from the loader's.
            **settings: device, rng_types, synchronized_generator, non_blocking, iteration.
        """
        kind: type[DataLoaderShard] = cls
        if type(loader) is not DataLoader:
            kind = type(f"Sharded{type(loader).__name__}", (cls, type(loader)), {})
        made = kind.__new__(kind)
        # The attributes are copied, not passed to a constructor: so nothing is lost, whatever
        # options this version of torch, or the loader's own class, has.
        made.__dict__.update(vars(loader), _iterator=None, **replaced)
        made._set_up(**settings)  # noqa: SLF001 -- its own class
        return made

    # What the loader knows of itself

    @property
    def _divided(self) -> BatchSamplerShard | IterableDatasetShard | None:
        """What divides the epoch between the ranks; None where nothing does."""
        for part in (self._index_sampler, self.dataset):
            if isinstance(part, (BatchSamplerShard, IterableDatasetShard)):
                return part
        return None

    @property
    def num_processes(self) -> int:
        """Number of ranks that the epoch is divided between."""
        return 1 if self._divided is None else self._divided.num_processes

    @property
    def total_batch_size(self) -> int | None:
        """Number of samples of all ranks in a full step; None where batches have no fixed size."""
        divided = self._divided
        if divided is None:
            size = getattr(self._index_sampler, "batch_size", None)
            return cast(int | None, size or self.batch_size)
        if divided.batch_size is None:
            return None
        return divided.batch_size * (1 if divided.split_batches else divided.num_processes)

    @property
    def total_dataset_length(self) -> int:
        """Number of samples in the dataset, before it is divided."""
        if isinstance(self.dataset, IterableDatasetShard):
            return self.dataset.total_length
        return len(self.dataset)  # type: ignore[arg-type]

    def get_sampler(self) -> Any:
        """Return the sampler of single samples, None where there is none."""
        return get_sampler(self)

    def set_sampler(self, sampler: Any) -> None:
        """Replace the sampler of single samples, inside whatever batches and divides it."""
        inside = [s for s in chain_of(self._index_sampler) if hasattr(s, "sampler")]
        if inside:
            inside[-1].sampler = sampler
        self.__dict__["sampler"] = sampler

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next iteration; passed on to samplers and dataset."""
        self.iteration = epoch
        for part in [*chain_of(self._index_sampler), self.dataset]:
            # A shard hands on to what it divides, which has its own turn in the chain.
            if not isinstance(part, BatchSamplerShard) and hasattr(part, "set_epoch"):
                part.set_epoch(epoch)

    def _honest_length(self) -> int | None:
        """Return the number of batches where it is certain beforehand, else None."""
        parts = chain_of(self._index_sampler)
        batchers = (BatchSampler, BatchSamplerShard, ItemShard)
        own_iteration = DataLoaderShard in type(self).__mro__[1:]
        if own_iteration or isinstance(self.dataset, IterableDataset):
            return None
        if type(parts[-1]) not in HONEST_LENGTH or any(type(p) not in batchers for p in parts[:-1]):
            return None
        return len(self._index_sampler)

    def _remainder_beforehand(self) -> int:
        """Return the remainder where it follows from the sampler's length, else -1."""
        batcher = chain_of(self._index_sampler)[-2:-1]
        if not batcher or type(batcher[0]) is not BatchSampler:
            return -1
        samples = len(batcher[0].sampler)  # type: ignore[arg-type]
        divided = self._divided
        plan = ShardPlan(
            samples,
            batcher[0].batch_size,
            self.num_processes,
            split_batches=divided is not None and divided.split_batches,
            drop_last=batcher[0].drop_last,
        )
        return plan.remainder

    # Iterating

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        turn = self._begin()
        try:
            self._bring_into_step()
            self.set_epoch(self.iteration)
            length = self._honest_length()
            if length is None:
                yield from self._look_ahead()
            else:
                self.remainder = self._remainder_beforehand()
                yield from self._count_down(length)
        finally:
            self._finish(turn)

    def _begin(self) -> object:
        state = self.gradient_state
        if self._turn is not None:
            state._remove_dataloader(self)  # noqa: SLF001
        self._turn = turn = object()
        self.end_of_dataloader = False
        self.remainder = -1
        self.short_step = None
        state._add_dataloader(self)  # noqa: SLF001
        return turn

    def _finish(self, turn: object) -> None:
        """Take this iteration off, unless a newer one of the same loader has taken its place."""
        if self._turn is not turn:
            return
        self._turn = None
        self.iteration += 1
        self.gradient_state._remove_dataloader(self)  # noqa: SLF001

    def _bring_into_step(self) -> None:
        others = [kind for kind in self.rng_types or () if str(kind) != "generator"]
        if others:
            synchronize_rng_states(others)
        if self.synchronized_generator is not None and ranks_meet(self.num_processes):
            share_generator_states([self.synchronized_generator], torch.distributed.get_rank())

    def _mover(self) -> Callable[[Any], Any] | None:
        """Return what brings a batch to the device; None where it can only be there already."""
        if self.device is None:
            return None
        if self.device.type == "cpu" and not torch.accelerator.is_available():
            return None
        return partial(send_to_device, device=self.device, non_blocking=self._non_blocking)

    def _count_down(self, length: int) -> Iterator[Any]:
        """Give the batches of an epoch whose length is known: no batch is read before its time.

        What the dataset and the loop draw from the same random generator stays in the order that
        a plain loader gives.
        """
        move = self._mover()
        for given, batch in enumerate(super().__iter__(), start=1):
            if given == length:
                self._mark_end(getattr(self._index_sampler, "short_step", None))
            yield batch if move is None else move(batch)

    def _look_ahead(self) -> Iterator[Any]:
        """Give the batches of an epoch whose end shows only when it is there: one is held back."""
        move = self._mover()
        batches = super().__iter__()
        missing = object()
        upcoming = next(batches, missing)
        while upcoming is not missing:
            batch, upcoming = upcoming, missing
            step = None
            if isinstance(batch, CountedBatch):
                batch, step = batch
            if move is not None:
                batch = move(batch)
            upcoming = next(batches, missing)
            self.short_step = step
            if upcoming is missing:
                if step is None:
                    step = getattr(self._index_sampler, "short_step", None)
                self._mark_end(step)
            yield batch

    def _mark_end(self, step: ShortStep | None) -> None:
        self.short_step = step
        if step is None:
            self.remainder = max(0, self.remainder)
        else:
            self.remainder = step.holders if step.samples is None else step.samples
        self.end_of_dataloader = True


def get_sampler(dataloader: DataLoader[Any]) -> Any:
    """Return a loader's sampler of single samples; None where its batch sampler has none."""
    index_sampler = (
        dataloader.sampler if dataloader.batch_sampler is None else dataloader.batch_sampler
    )
    innermost = chain_of(index_sampler)[-1]
    return (
        None if innermost is index_sampler and dataloader.batch_sampler is not None else innermost
    )


def ranks_meet(num_processes: int) -> bool:
    """Tell whether the ranks that a loader is divided between can speak with each other."""
    torch_ranks = torch.distributed
    return (
        num_processes > 1
        and torch_ranks.is_available()
        and torch_ranks.is_initialized()
        and torch_ranks.get_world_size() == num_processes
    )


def refuse_later_options(**options: Any) -> None:
    """Refuse options that are known but not built yet, rather than ignore them.

    Raises:
        NotImplementedError: names the option and its value.
    """
    for name, value in options.items():
        if value:
            raise NotImplementedError(
                f"{name}={value!r} is not built yet in this version of rankzero: leave it out."
            )


def warn_of_seed_without_use(data_seed: int | None, use_seedable_sampler: bool) -> None:
    """Warn where a seed is given that nothing reads."""
    if data_seed is not None and not use_seedable_sampler:
        warnings.warn(
            f"data_seed={data_seed} has no effect without use_seedable_sampler=True.", stacklevel=3
        )
