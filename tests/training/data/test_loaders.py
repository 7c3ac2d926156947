"""Prepared loaders: the plain loader's batches, divided, in one order, on the device."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from rankzero import Accelerator, DataLoaderConfiguration
from rankzero.data_loader import DataLoaderShard, SeedableRandomSampler, prepare_data_loader
from rankzero.state import GradientState, PartialState
from tests.ranks import run_ranks, run_ranks_failing


def ids(batch: Any) -> list[int]:
    return (batch[0] if isinstance(batch, list) else batch).tolist()


def numbers(length: int) -> TensorDataset:
    return TensorDataset(torch.arange(length))


@pytest.mark.parametrize("workers", [0, 2])
def test_on_one_process_batches_and_random_numbers_are_the_plain_loaders(workers: int) -> None:
    def epochs(loader: Any) -> Any:
        torch.manual_seed(5)
        return [ids(batch) for _ in range(2) for batch in loader], torch.rand(1).item()

    def make() -> DataLoader:
        return DataLoader(numbers(10), batch_size=4, shuffle=True, num_workers=workers)

    assert epochs(prepare_data_loader(make())) == epochs(make())


def test_what_a_loader_was_made_with_is_kept() -> None:
    def collate(samples: list) -> list:
        return samples

    loader = DataLoader(
        numbers(6),
        batch_size=2,
        num_workers=1,
        collate_fn=collate,
        timeout=3,
        prefetch_factor=3,
        persistent_workers=True,
        worker_init_fn=print,
        drop_last=True,
        generator=torch.Generator(),
    )
    prepared = prepare_data_loader(loader, num_processes=2, process_index=1)
    assert isinstance(prepared, DataLoader)
    for name in (
        "num_workers",
        "collate_fn",
        "timeout",
        "prefetch_factor",
        "persistent_workers",
        "worker_init_fn",
        "generator",
        "dataset",
    ):
        assert getattr(prepared, name) is getattr(loader, name), name
    assert prepared.total_batch_size == 4
    assert prepared.total_dataset_length == 6
    assert len(prepared) == 1


def test_the_last_batch_is_known_when_it_is_given_and_loops_may_be_nested() -> None:
    state = GradientState()
    outer = prepare_data_loader(DataLoader(numbers(4), batch_size=2))
    inner = prepare_data_loader(DataLoader(numbers(2), batch_size=2))
    seen = []
    for _ in outer:
        for _ in inner:
            seen.append(("inner", state.active_dataloader is inner, state.end_of_dataloader))
        seen.append(("outer", state.active_dataloader is outer, state.end_of_dataloader))
    assert seen == [
        ("inner", True, True),
        ("outer", True, False),
        ("inner", True, True),
        ("outer", True, True),
    ]
    assert not state.in_dataloader


def test_leaving_a_loop_early_leaves_no_trace() -> None:
    state = GradientState()
    loader = prepare_data_loader(DataLoader(numbers(8), batch_size=2))
    for _ in loader:
        break
    assert not state.in_dataloader

    def loop() -> None:
        for _ in loader:
            raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        loop()
    assert not state.in_dataloader
    assert len(list(loader)) == 4


def test_an_empty_loader_gives_nothing() -> None:
    loader = Accelerator().prepare(DataLoader([]))
    assert list(loader) == []
    assert not GradientState().in_dataloader


class Epochs(Dataset):
    epoch = -1

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        return index + 10 * self.epoch

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_the_epoch_is_counted_and_passed_on_and_may_be_set() -> None:
    loader = prepare_data_loader(DataLoader(Epochs()))
    assert [batch.item() for _ in range(2) for batch in loader] == [0, 1, 10, 11]
    loader.set_epoch(7)
    assert [batch.item() for batch in loader] == [70, 71]
    assert [batch.item() for batch in loader] == [80, 81]


def test_a_seedable_order_follows_from_seed_and_epoch_alone() -> None:
    def order(seed: int) -> list:
        loader = DataLoader(numbers(20), batch_size=20, shuffle=True)
        prepared = prepare_data_loader(loader, use_seedable_sampler=True, data_seed=seed)
        torch.manual_seed(random.randrange(1000))
        return [ids(batch) for _ in range(2) for batch in prepared]

    first, second = order(3)
    assert first != second
    assert order(3) == [first, second]
    assert order(4) != [first, second]
    assert isinstance(
        prepare_data_loader(
            DataLoader(numbers(4), shuffle=True), use_seedable_sampler=True
        ).get_sampler(),
        SeedableRandomSampler,
    )


@pytest.mark.parametrize(
    "option",
    [
        {"use_stateful_dataloader": True},
        {"dispatch_batches": True},
        {"slice_fn_for_dispatch": print},
        {"torch_device_mesh": object()},
    ],
)
def test_an_option_of_a_later_version_is_turned_down(option: dict[str, Any]) -> None:
    with pytest.raises(NotImplementedError, match=next(iter(option))):
        prepare_data_loader(DataLoader(numbers(4)), **option)


def test_batches_are_brought_to_the_device() -> None:
    loader = DataLoader([{"x": torch.ones(1), "name": "a"}])
    prepared = prepare_data_loader(loader, device=torch.device("meta"), put_on_device=True)
    (batch,) = prepared
    assert batch["x"].device.type == "meta"
    assert batch["name"] == ["a"]


def _orders() -> dict:
    rank = PartialState().process_index
    torch.manual_seed(100 + rank)  # ranks that are seeded differently
    random.seed(rank)

    def epochs(loader: DataLoader, **options: Any) -> list:
        prepared = prepare_data_loader(loader, **options)
        return [[ids(batch) for batch in prepared] for _ in range(2)]

    data = numbers(12)
    subset = SubsetRandomSampler(range(12))
    weighted = WeightedRandomSampler([1.0] * 12, 12, replacement=False)
    own = torch.Generator().manual_seed(rank)
    return {
        "random": epochs(DataLoader(data, batch_size=2, shuffle=True)),
        "generator": epochs(DataLoader(data, batch_size=2, shuffle=True, generator=own)),
        "subset": epochs(DataLoader(data, batch_size=2, sampler=subset)),
        "weighted": epochs(DataLoader(data, batch_size=2, sampler=weighted)),
        "workers": epochs(DataLoader(data, batch_size=2, shuffle=True, num_workers=1)),
        "split": epochs(DataLoader(data, batch_size=4, shuffle=True), split_batches=True),
        "seedable": epochs(DataLoader(data, batch_size=2, shuffle=True), use_seedable_sampler=True),
        "own_numbers": torch.rand(1).item(),
    }


def test_ranks_share_one_shuffle_that_is_new_each_epoch() -> None:
    first, second = run_ranks(_orders, 2)
    assert first.pop("own_numbers") != second.pop("own_numbers")
    for name in first:
        for epoch in range(2):
            seen = [i for part in (first, second) for batch in part[name][epoch] for i in batch]
            assert sorted(seen) == list(range(12)), name
        assert first[name][0] != first[name][1], name


def _same_as_plain(world: int) -> list:
    PartialState()
    torch.manual_seed(9)
    plain = [sorted(ids(b)) for b in DataLoader(numbers(12), batch_size=2 * world, shuffle=True)]
    torch.manual_seed(9)
    loader = prepare_data_loader(DataLoader(numbers(12), batch_size=2, shuffle=True))
    return [plain, [ids(batch) for batch in loader]]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_each_step_of_all_ranks_is_a_batch_of_the_plain_loader(world: int) -> None:
    results = run_ranks(_same_as_plain, world, world)
    plain = results[0][0]
    steps = zip(*(batches for _, batches in results), strict=True)
    assert [sorted(i for batch in step for i in batch) for step in steps] == plain


class Stream(IterableDataset):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Any:
        return iter(range(self.length))


def _metrics(lengths: list[int], options: dict[str, Any], iterable: bool, workers: int) -> list:
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(**options))
    # Where a rank has no batch in the last step, it gets nothing from that step.
    misses = not options.get("even_batches", True) and not accelerator.is_main_process
    wrong = []
    for length in lengths:
        for size in (1, 3, 6):
            data = Stream(length) if iterable else list(range(length))
            split = options.get("split_batches", False)
            loader = DataLoader(data, batch_size=6 if split else size, num_workers=workers)
            got, objects = [], []
            for batch in accelerator.prepare(loader):
                told = accelerator.gather_for_metrics(
                    {"x": batch, "pair": (batch * 2, batch.float())}
                )
                assert told["pair"][0].tolist() == [2 * i for i in told["x"].tolist()]
                got += told["x"].tolist()
                names = [f"s{i}" for i in batch.tolist()]
                left, right = accelerator.gather_for_metrics((names, names))
                assert left == right
                objects += left
            seen = len(got) if misses else length
            if got != list(range(seen)) or objects != [f"s{i}" for i in range(seen)]:
                wrong.append((length, size, got, objects))
    return wrong


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize(
    "options",
    [{}, {"split_batches": True}, {"even_batches": False}],
    ids=["deal", "split", "uneven"],
)
def test_metrics_are_gathered_for_each_sample_once_on_every_length(
    world: int, options: dict[str, Any]
) -> None:
    lengths = [0, 1, 2, 3, 5, 6, 7, 12, 13]
    assert run_ranks(_metrics, world, lengths, options, False, 0) == [[]] * world


def test_metrics_of_a_stream_are_gathered_for_each_sample_once() -> None:
    assert run_ranks(_metrics, 2, [0, 1, 3, 7, 12], {}, True, 0) == [[], []]


@pytest.mark.parametrize("even", [True, False])
def test_metrics_are_exact_where_workers_read_ahead(even: bool) -> None:
    assert run_ranks(_metrics, 2, [7], {"even_batches": even}, False, 1) == [[], []]


def _odd_metrics() -> dict:
    accelerator = Accelerator()
    rank = accelerator.process_index
    loader = accelerator.prepare(DataLoader(list(range(3)), batch_size=2))
    results: dict[str, Any] = {}
    for batch in loader:
        results["scalar"] = accelerator.gather_for_metrics(torch.tensor(rank)).tolist()
        named = {"a": [f"a{i}" for i in batch.tolist()], "b": batch * 10, "n": rank}
        if rank:
            named = dict(reversed(named.items()))
        results["named"] = accelerator.gather_for_metrics(named)
        tokens = batch.repeat_interleave(2)
        results["tokens"] = accelerator.gather_for_metrics(tokens).tolist()
        results["objects"] = accelerator.gather_for_metrics(batch.tolist(), use_gather_object=True)
        results["none"] = accelerator.gather_for_metrics({"a": None, "b": ["x"] * len(batch)})
    return results


def test_what_is_not_one_value_a_sample_is_trimmed_in_proportion_or_kept() -> None:
    for got in run_ranks(_odd_metrics, 2):
        assert got["scalar"] == [0, 1]
        assert got["named"]["a"] == ["a0", "a1", "a2"]
        assert got["named"]["b"].tolist() == [0, 10, 20]
        assert got["named"]["n"] == [0, 1]
        assert got["tokens"] == [0, 0, 1, 1, 2, 2]
        assert got["objects"] == [0, 1, 2]
        assert got["none"] == {"a": None, "b": ["x"] * 3}


def _one_value_a_rank() -> list:
    accelerator = Accelerator()
    got = []
    for length, size in ((5, 1), (5, 2), (8, 2)):
        loader = accelerator.prepare(DataLoader(list(range(length)), batch_size=size))
        for batch in loader:
            mean = batch.float().mean()
            told = accelerator.gather_for_metrics({"mean": mean, "number": mean.item()})
            assert told["mean"].tolist() == told["number"]
            assert accelerator.gather_for_metrics(mean).tolist() == told["number"]
        got.append(told["number"])
    return got


def test_one_value_a_rank_is_kept_of_ranks_that_hold_something_real() -> None:
    for got in run_ranks(_one_value_a_rank, 3):
        # In their last steps rank 2 repeats, no rank does, and ranks 1 and 2 do.
        assert got == [[3, 4], [0.5, 2.5, 2.0], [6.5]]


def _other_fields() -> None:
    accelerator = Accelerator()
    accelerator.gather_for_metrics({["loss", "accuracy"][accelerator.process_index]: "x"})


def test_other_fields_on_another_rank_are_an_error_on_every_rank() -> None:
    for name, message in run_ranks_failing(_other_fields, 2):
        assert name == "DistributedOperationException"
        assert "{'accuracy': 'x'}" in message


def _dropped() -> list:
    accelerator = Accelerator()
    got = []
    for length in (9, 11, 20):
        loader = accelerator.prepare(DataLoader(list(range(length)), batch_size=5, drop_last=True))
        got.append([i for b in loader for i in accelerator.gather_for_metrics(b).tolist()])
    return got


def test_with_drop_last_nothing_that_was_given_is_trimmed() -> None:
    for got in run_ranks(_dropped, 2):
        assert got == [[], list(range(10)), list(range(20))]


class Sizes:
    def __iter__(self) -> Any:
        return iter([[0, 1, 2], [3], [4, 5, 6, 7]])

    def __len__(self) -> int:
        return 3


def _custom(even: bool) -> list:
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(even_batches=even))
    loader = accelerator.prepare(DataLoader(list(range(8)), batch_sampler=Sizes()))
    return [i for b in loader for i in accelerator.gather_for_metrics(b).tolist()]


@pytest.mark.parametrize("even", [True, False])
def test_a_custom_batch_sampler_of_varying_sizes_is_gathered_exactly(even: bool) -> None:
    first, second = run_ranks(_custom, 2, even)
    assert first == list(range(8))
    assert second == (first if even else first[:4])  # it has no batch in the last step


def test_a_loader_without_batches_is_passed_through_on_one_process() -> None:
    loader = prepare_data_loader(DataLoader(numbers(3), batch_size=None))
    assert isinstance(loader, DataLoaderShard)
    assert [item[0].item() for item in loader] == [0, 1, 2]
