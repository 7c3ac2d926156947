"""Names that scripts import from here; they live in ``rankzero.training.data``."""

from rankzero.training.data.loaders import prepare_data_loader
from rankzero.training.data.samplers import BatchSamplerShard, SeedableRandomSampler
from rankzero.training.data.shard_loader import DataLoaderShard, get_sampler
from rankzero.training.data.streams import IterableDatasetShard

__all__ = [
    "BatchSamplerShard",
    "DataLoaderShard",
    "IterableDatasetShard",
    "SeedableRandomSampler",
    "get_sampler",
    "prepare_data_loader",
]
