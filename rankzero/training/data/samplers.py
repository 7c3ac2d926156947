"""Samplers that give one rank its part of an epoch, read as it is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain, islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, RandomSampler

from rankzero.training.data.sharding import (
    ShardPlan,
    ShortStep,
    check_rank,
    share_of_batch,
    short_step,
)


class BatchSamplerShard(BatchSampler):
    """One rank's part of what a batch sampler gives.

    Without ``split_batches`` whole batches are dealt: number 0 to rank 0, number 1 to rank 1, and so
    on. With it every batch is cut into equal parts, in the order of the ranks. Either way the parts
    of one step, put together in the order of the ranks, are in the batch sampler's order.

    Any iterable of batches will do: sizes may vary, ``batch_size`` may be missing, the epoch may
    have no end. It is read one step ahead and never kept.

    At the end of an epoch, with ``even_batches``, every rank gets a batch in the last step: the last
    batch is filled up to ``batch_size``, and the ranks behind it get batches, from the start of the
    epoch. Where ``batch_size`` is not known whole batches are repeated and the last one stays as it
    is. A batch sampler with ``drop_last`` has an incomplete last step left out instead.

    Args:
        batch_sampler: An iterable of batches of indices.
        num_processes: Number of ranks.
        process_index: This rank.
        split_batches: Cut each batch between the ranks instead of dealing whole ones.
        even_batches: Give all ranks equally many batches by repeating samples; else no sample is
            given twice and the later ranks may have one batch less.

    Attributes:
        short_step: Once a batch of the last step has been given: what the ranks hold in that step,
            where it is short of real samples; else None, also on a rank without a batch in it.

    Raises:
        ValueError: where batches of ``batch_size`` can't be cut into ``num_processes`` parts.
    """

    def __init__(
        self,
        batch_sampler: Iterable[Any],
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        check_rank(num_processes, process_index)
        self.batch_sampler = batch_sampler
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.batch_size: int | None = getattr(batch_sampler, "batch_size", None)  # type: ignore[assignment]
        self.drop_last = bool(getattr(batch_sampler, "drop_last", False))
        self.short_step: ShortStep | None = None
        # Entered around the first draw from the batch sampler: where ranks are brought into step.
        self.first_draw: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext
        if self.batch_size is not None:
            share_of_batch(self.batch_size, num_processes, split_batches)

    @property
    def total_length(self) -> int:
        """Number of batches of the batch sampler, before it is divided."""
        return len(self.batch_sampler)  # type: ignore[arg-type]

    @property
    def sampler(self) -> Any:
        """The sampler inside the batch sampler, None where there is none."""
        return getattr(self.batch_sampler, "sampler", None)

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self.batch_sampler.sampler = sampler  # type: ignore[attr-defined]

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the batch sampler, if it takes one."""
        if hasattr(self.batch_sampler, "set_epoch"):
            self.batch_sampler.set_epoch(epoch)

    def __len__(self) -> int:
        total = self.total_length
        if self.split_batches or self.num_processes == 1:
            return total if self.even_batches or self.drop_last else self._len_split_uneven(total)
        full, rest = divmod(total, self.num_processes)
        if not rest or self.drop_last:
            return full
        return full + (self.even_batches or self.process_index < rest)

    def _len_split_uneven(self, total: int) -> int:
        """Count the batches where the last one, cut, may leave nothing for this rank."""
        try:
            samples = len(self.sampler)
        except TypeError:
            return total
        if type(self.batch_sampler) is not BatchSampler or self.batch_size is None:
            return total
        plan = ShardPlan(samples, self.batch_size, self.num_processes, True, False)
        return plan.num_batches(self.process_index)

    def __iter__(self) -> Iterator[Any]:
        self.short_step = None
        batches = iter(self.batch_sampler)
        with self.first_draw():
            first = list(islice(batches, 1))
        batches = chain(first, batches)
        if self.num_processes == 1:
            yield from batches
        elif self.split_batches:
            yield from self._cut(batches)
        else:
            yield from self._deal(batches)

    # Dealing whole batches

    def _deal(self, batches: Iterator[Any]) -> Iterator[Any]:
        ranks = self.num_processes
        head = Head(self)
        current = list(islice(batches, ranks))
        while current:
            head.keep(current)
            upcoming = list(islice(batches, ranks))
            if upcoming:
                yield current[self.process_index]
            else:
                yield from self._deal_last(current, head)
            current = upcoming

    def _deal_last(self, batches: list[Any], head: Head) -> Iterator[Any]:
        """Give this rank's batch of the last step, of which ``batches`` are real."""
        rank, ranks, size = self.process_index, self.num_processes, self.batch_size
        real = len(batches)
        missing = 0 if size is None else max(0, size - len(batches[-1]))
        if self.drop_last:
            if real == ranks:
                yield batches[rank]
            return
        if real == ranks and not missing:
            yield batches[rank]
            return
        samples = self._count(batches)
        if not self.even_batches:
            if rank < real:
                self.short_step = ShortStep(samples, samples, real, real)
                yield batches[rank]
        elif size is None:
            self.short_step = ShortStep(samples, None, real, ranks)
            yield batches[rank] if rank < real else head.batch(rank - real)
        else:
            total = (samples or 0) + missing + (ranks - real) * size
            self.short_step = ShortStep(samples, total, real, ranks)
            if rank < real - 1:
                yield batches[rank]
            elif rank == real - 1:
                yield [*batches[rank], *head.samples(0, missing)]
            else:
                yield head.samples(missing + (rank - real) * size, size)

    def _count(self, batches: list[Any]) -> int | None:
        return sum(map(len, batches))

    # Cutting each batch

    def _cut(self, batches: Iterator[Any]) -> Iterator[Any]:
        head = Head(self)
        current = next(batches, None)
        while current is not None:
            head.keep([current])
            upcoming = next(batches, None)
            if upcoming is None:
                yield from self._cut_last(current, head)
            else:
                yield self._part(current)
            current = upcoming

    def _part(self, batch: Any) -> Any:
        """Return this rank's part of a batch that is not the last."""
        rank, ranks, size = self.process_index, self.num_processes, len(batch)
        share, rest = divmod(size, ranks)
        if not rest:
            return batch[rank * share : (rank + 1) * share]
        if self.even_batches or not share:
            raise ValueError(
                f"split_batches=True: a batch of {size} samples can't be cut into "
                f"num_processes={ranks} {'equal ' if self.even_batches else ''}parts. Let the batch "
                f"sampler give multiples of {ranks}, or use split_batches=False."
            )
        start = rank * share + min(rank, rest)
        return batch[start : start + share + (rank < rest)]

    def _cut_last(self, batch: Any, head: Head) -> Iterator[Any]:
        rank, ranks, samples = self.process_index, self.num_processes, len(batch)
        size = -(-samples // ranks) * ranks
        if self.batch_size is not None:
            size = max(size, self.batch_size)
        if samples < size and self.drop_last:
            return
        share = size // ranks
        if samples < size and self.even_batches:
            batch = [*batch, *head.samples(0, size - samples)]
        part = batch[rank * share : (rank + 1) * share]
        if len(part):
            if samples < size:
                self.short_step = short_step(samples, share, ranks, self.even_batches)
            yield part


class Head:
    """The start of an epoch, as much as this rank may have to repeat at its end."""

    def __init__(self, shard: BatchSamplerShard) -> None:
        self.batches: list[Any] = []
        self._samples: list[Any] | None = None
        # A rank repeats at most what lies before the end of its own place in a step.
        self._wanted = shard.process_index + 1
        self._missing = self._wanted * (shard.batch_size or 1)
        self._by_samples = shard.batch_size is not None or shard.split_batches
        if shard.split_batches:
            self._missing = max(self._missing, shard.num_processes)
        self._open = shard.even_batches and not shard.drop_last

    def keep(self, batches: list[Any]) -> None:
        """Take in the next batches of the epoch, while more may be needed."""
        if not self._open:
            return
        for batch in batches:
            self.batches.append(batch)
            self._missing -= len(batch) if self._by_samples else 1
            if self._missing <= 0:
                self._open = False
                return

    def batch(self, index: int) -> Any:
        """Return batch ``index`` of the epoch, starting over where it has fewer."""
        return self.batches[index % len(self.batches)]

    def samples(self, start: int, count: int) -> list[Any]:
        """Return ``count`` samples of the epoch from ``start`` on, starting over at its end."""
        if self._samples is None:
            self._samples = [index for batch in self.batches for index in batch]
        kept = self._samples
        return [kept[index % len(kept)] for index in range(start, start + count)]


class ItemShard(BatchSamplerShard):
    """One rank's part of a plain sampler, for loaders with ``batch_size=None``: dealt one by one."""

    def __init__(
        self,
        sampler: Iterable[Any],
        num_processes: int = 1,
        process_index: int = 0,
        even_batches: bool = True,
    ) -> None:
        super().__init__(sampler, num_processes, process_index, False, even_batches)
        self.batch_size = None
        self.drop_last = False

    @property
    def sampler(self) -> Any:
        """The sampler that is divided."""
        return self.batch_sampler

    @sampler.setter
    def sampler(self, sampler: Any) -> None:
        self.batch_sampler = sampler

    def _count(self, batches: list[Any]) -> int | None:  # noqa: ARG002 -- an item has no length
        return None


class SeedableRandomSampler(RandomSampler):
    """A random sampler whose order follows from ``data_seed + epoch`` alone.

    The same epoch has the same order in every run and on every rank, whatever else has drawn
    random numbers; each epoch has another one. Reaching the end moves on to the next epoch.

    Args:
        *args: As for ``torch.utils.data.RandomSampler``.
        data_seed: The seed; None: the one that torch's global generator was last seeded with.
        **kwargs: As for ``torch.utils.data.RandomSampler``.
    """

    def __init__(self, *args: Any, data_seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial_seed = torch.random.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        if self.generator is None:
            self.generator = torch.Generator()
        # Seeds live in 64 bits: initial_seed() may be the highest of them.
        self.generator.manual_seed((self.initial_seed + self.epoch) % 2**64)
        yield from super().__iter__()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration gives."""
        self.epoch = epoch
