"""Which samples each rank gets, as arithmetic on whole numbers: no process, no data, no torch.

An epoch is a stream of sample positions 0, 1, 2, ... in the order that the sampler gives. It is cut
into global steps of ``total_batch_size`` positions; each step is cut into ``world_size`` equal
shares, the first share to rank 0, the next to rank 1, and so on. So the shares of a step, put
together in the order of the ranks, are in the order of the stream; whatever is repeated to even out
the ranks stands at the end of the last step, and is cut off by keeping the first ``remainder``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ShortStep(NamedTuple):
    """A step in which the ranks together hold fewer real samples than in a full one.

    Attributes:
        samples: Number of real samples over all ranks; None where they can't be counted.
        total: Number of samples over all ranks with the repeated ones, all of which stand behind
            the real ones in the order of the ranks; None where whole batches are repeated.
        holders: Number of ranks that hold something real: ranks 0 to ``holders - 1``.
        present: Number of ranks that have a batch in this step: ranks 0 to ``present - 1``.
    """

    samples: int | None
    total: int | None
    holders: int
    present: int


def check_rank(num_processes: int, process_index: int) -> None:
    """Check that ``process_index`` is one of ``num_processes`` ranks.

    Raises:
        ValueError: names the argument, its value and what is possible.
    """
    if num_processes < 1:
        raise ValueError(f"num_processes={num_processes!r}: there is at least one process.")
    if not 0 <= process_index < num_processes:
        raise ValueError(
            f"process_index={process_index!r} is not one of num_processes={num_processes}: "
            f"write 0 to {num_processes - 1}."
        )


def share_of_batch(batch_size: int, num_processes: int, split_batches: bool) -> int:
    """Return the number of samples that one rank gets in a full step.

    Raises:
        ValueError: where a batch is to be split and can't be: names the sizes that can.
    """
    if not split_batches:
        return batch_size
    if batch_size % num_processes:
        below = batch_size - batch_size % num_processes
        usable = [str(size) for size in (below, below + num_processes) if size]
        raise ValueError(
            f"split_batches=True cuts each batch into equal parts, and batch_size={batch_size} is "
            f"not a multiple of num_processes={num_processes}: use batch_size {' or '.join(usable)}, "
            "or split_batches=False."
        )
    return batch_size // num_processes


@dataclass(frozen=True)
class ShardPlan:
    """How ``length`` samples are divided between ``world_size`` ranks.

    Attributes:
        length: Number of samples in the epoch.
        batch_size: The loader's batch size.
        world_size: Number of ranks.
        split_batches: ``batch_size`` is the size of the step over all ranks, not of one rank's part.
        even_batches: Go on from the start of the stream until the last step is full, so that
            all ranks have equally many, full batches. On one rank there is nothing to even out.
        drop_last: Leave out the last step where it isn't full (``even_batches`` has no effect then).
    """

    length: int
    batch_size: int
    world_size: int = 1
    split_batches: bool = False
    even_batches: bool = True
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_rank(self.world_size, 0)
        share_of_batch(self.batch_size, self.world_size, self.split_batches)

    @property
    def share(self) -> int:
        """Number of samples of one rank in a full step."""
        return share_of_batch(self.batch_size, self.world_size, self.split_batches)

    @property
    def total_batch_size(self) -> int:
        """Number of samples of all ranks in a full step."""
        return self.share * self.world_size

    @property
    def pads(self) -> bool:
        """Whether samples are repeated where the last step isn't full."""
        return self.even_batches and not self.drop_last and self.world_size > 1

    @property
    def steps(self) -> int:
        """Number of steps, counting one that only some of the ranks have."""
        full, rest = divmod(self.length, self.total_batch_size)
        return full + bool(rest and not self.drop_last)

    @property
    def remainder(self) -> int:
        """Number of real samples in the last step where it is not full; else 0."""
        return 0 if self.drop_last else self.length % self.total_batch_size

    @property
    def short_step(self) -> ShortStep | None:
        """What the ranks hold in the last step where it is not full; else None."""
        if not self.remainder:
            return None
        return short_step(self.remainder, self.share, self.world_size, self.pads)

    def num_batches(self, rank: int) -> int:
        """Return the number of batches of ``rank``."""
        if self.pads or self.drop_last or not self.remainder:
            return self.steps
        return self.steps - (self.remainder <= rank * self.share)

    def num_samples(self, rank: int) -> int:
        """Return the number of samples of ``rank``, with the repeated ones."""
        full = self.length // self.total_batch_size * self.share
        if not self.remainder:
            return full
        last = self.remainder - rank * self.share
        return full + (self.share if self.pads else max(0, min(self.share, last)))

    def batch(self, rank: int, step: int) -> list[int]:
        """Return the positions in the stream that ``rank`` gets in ``step``.

        Raises:
            IndexError: where the rank has no such batch.
        """
        if not 0 <= step < self.num_batches(rank):
            raise IndexError(
                f"step={step}: rank {rank} has {self.num_batches(rank)} batches, counted from 0."
            )
        start = step * self.total_batch_size + rank * self.share
        stop = start + self.share
        if self.pads:
            return [position % self.length for position in range(start, stop)]
        return list(range(start, min(stop, self.length)))


def short_step(samples: int, share: int, world_size: int, pads: bool) -> ShortStep:
    """Describe a step of ``samples`` real samples where a full one has ``share`` on each rank."""
    holders = -(-samples // share)
    if pads:
        return ShortStep(samples, share * world_size, holders, world_size)
    return ShortStep(samples, samples, holders, holders)
