"""The names under which scripts import loaders and samplers."""

from rankzero.training.data.loaders import DataLoaderShard, get_sampler, prepare_data_loader
from rankzero.training.data.samplers import BatchSamplerShard, SeedableRandomSampler
from rankzero.training.data.streams import IterableDatasetShard

__all__ = [
    "BatchSamplerShard",
    "DataLoaderShard",
    "IterableDatasetShard",
    "SeedableRandomSampler",
    "get_sampler",
    "prepare_data_loader",
]
