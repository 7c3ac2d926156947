"""Iterable datasets on several ranks: every rank reads the whole stream and keeps its part."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch.utils.data import IterableDataset, get_worker_info

from rankzero.training.data.sharding import (
    ShardPlan,
    ShortStep,
    check_rank,
    share_of_batch,
    short_step,
)

logger = logging.getLogger(__name__)


class IterableDatasetShard(IterableDataset[Any]):
    """One rank's part of an iterable dataset whose whole stream every rank reads.

    The stream is cut into steps of the size of all ranks' batches together, and each step into
    equal parts in the order of the ranks. The stream must be the same on all ranks. At its end the
    last step is filled up with samples from its start, which are kept in memory for that.

    Args:
        dataset: The dataset, the same on each rank.
        batch_size: The loader's batch size: of one rank, or with ``split_batches`` of all.
        drop_last: Leave out an incomplete last step.
        num_processes: Number of ranks.
        process_index: This rank.
        split_batches: ``batch_size`` is that of all ranks together.
        even_batches: Fill the last step up; else its samples go to the first ranks, and the
            others get fewer.

    Attributes:
        short_step: What the ranks hold in the step whose samples were given last, where it is
            short of real samples; else None.
    """

    def __init__(
        self,
        dataset: Iterable[Any],
        batch_size: int = 1,
        drop_last: bool = False,
        num_processes: int = 1,
        process_index: int = 0,
        split_batches: bool = False,
        even_batches: bool = True,
    ) -> None:
        check_rank(num_processes, process_index)
        self.share = share_of_batch(batch_size, num_processes, split_batches)
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.num_processes = num_processes
        self.process_index = process_index
        self.split_batches = split_batches
        self.even_batches = even_batches
        self.short_step: ShortStep | None = None
        self._reported = False

    @property
    def pads(self) -> bool:
        """Whether the last step is filled up."""
        return self.even_batches and not self.drop_last and self.num_processes > 1

    @property
    def total_length(self) -> int:
        """Number of samples of the dataset, before it is divided."""
        return len(self.dataset)  # type: ignore[arg-type]

    def set_epoch(self, epoch: int) -> None:
        """Pass the epoch on to the dataset, if it takes one."""
        if hasattr(self.dataset, "set_epoch"):
            self.dataset.set_epoch(epoch)

    def __len__(self) -> int:
        """Return the number of samples that this rank gets, the repeated ones included."""
        plan = ShardPlan(
            self.total_length,
            self.batch_size,
            self.num_processes,
            self.split_batches,
            self.even_batches,
            self.drop_last,
        )
        return plan.num_samples(self.process_index)

    def __iter__(self) -> Iterator[Any]:
        self.short_step = None
        total = self.share * self.num_processes
        start = self.process_index * self.share
        stop = start + self.share
        samples = iter(self.dataset)
        head: list[Any] | None = None
        read = 0
        while True:
            step, count = _read_step(samples, total, start, stop, keep_head=head is None)
            read += count
            if head is None:
                # What this rank may have to repeat lies before the end of its own place in a step.
                head = step[:stop] if self.pads else []
                step = step[start:stop]
            if count < total:
                break
            yield from step
        if count and not self.drop_last:
            self.short_step = short_step(count, self.share, self.num_processes, self.pads)
            if self.pads:
                missing = range(max(start, count) - count, stop - count)
                step += [head[index % len(head)] for index in missing]
            yield from step
        self._report(read)

    def _report(self, read: int) -> None:
        """Say once what reading everything everywhere comes to, for who wonders about speed."""
        if not self._reported and get_worker_info() is None:
            self._reported = True
            logger.info(
                "Rank %d kept 1 of each %d samples of the %d that it read. If the stream is already "
                "divided between the ranks, set dataset.already_sharded = True.",
                self.process_index,
                self.num_processes,
                read,
            )


def _read_step(
    samples: Iterator[Any], total: int, start: int, stop: int, keep_head: bool
) -> tuple[list[Any], int]:
    """Read one step; return its samples from ``start`` to ``stop``, and how many it has.

    With ``keep_head`` the samples are those from 0 to ``stop``.
    """
    before = list(islice(samples, start)) if keep_head else []
    count = len(before) if keep_head else sum(1 for _ in islice(samples, start))
    own = list(islice(samples, stop - start)) if count == start else []
    count += len(own)
    if count == stop:
        count += sum(1 for _ in islice(samples, total - stop))
    return list(chain(before, own)), count


class CountedBatch(NamedTuple):
    """A batch on its way from a worker, with what the ranks hold in its step.

    Pinning memory goes through it, as it does through any named tuple.
    """

    batch: Any
    short_step: ShortStep | None


class CountedCollate:
    """Collates, and sends along whether the step is short of real samples.

    Streams end inside the workers, each at its own time: only there is it known.
    """

    def __init__(self, collate: Callable[[Any], Any], shard: IterableDatasetShard) -> None:
        self.collate = collate
        self.shard = shard

    def __call__(self, samples: Any) -> CountedBatch:
        """Collate the samples that the shard gave last."""
        return CountedBatch(self.collate(samples), self.shard.short_step)


def divides_itself(dataset: Any, num_processes: int) -> bool:
    """Tell whether an iterable dataset already gives each rank a part of its own.

    ``dataset.already_sharded`` decides where it is set. Known besides: Hugging Face datasets
    after ``split_dataset_by_node``, WebDataset pipelines with a node splitter, and MosaicML's
    ``StreamingDataset``.
    """
    said = getattr(dataset, "already_sharded", None)
    if said is not None:
        return bool(said)
    if getattr(getattr(dataset, "_distributed", None), "world_size", 1) == num_processes:
        return True
    stages = getattr(dataset, "pipeline", None)
    if isinstance(stages, list):
        names = {getattr(stage, "__name__", type(stage).__name__) for stage in stages}
        if "split_by_node" in names:
            return True
    return any(
        base.__module__.split(".")[0] == "streaming" and base.__name__ == "StreamingDataset"
        for base in type(dataset).__mro__
    )


def generator_of(dataset: Any) -> torch.Generator | None:
    """Return the generator that an iterable dataset holds under ``generator``, if it does."""
    held = getattr(dataset, "generator", None)
    return held if isinstance(held, torch.Generator) else None
