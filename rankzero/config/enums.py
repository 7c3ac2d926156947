"""The closed lists of names that settings are chosen from.

Members and spellings are those that scripts and YAML files written for Hugging Face Accelerate use.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from rankzero.config.choices import unknown_choice

if TYPE_CHECKING:
    from typing_extensions import Self

E = TypeVar("E", bound="NamedChoice")


class NamedChoice(str, Enum):
    """A string enumeration that is equal to, hashes like and prints like its value."""

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def list(cls) -> list[str]:
        """Return the values, in order."""
        return [str(member.value) for member in cls]

    @classmethod
    def parse(cls, argument: str, value: object) -> Self:
        """Return the member for ``value``, in any letter case.

        Raises:
            ValueError: names ``argument``, the value and the known names, nearest first.
        """
        if isinstance(value, cls):
            return value
        for member in cls:
            if str(value).lower() == str(member.value).lower():
                return member
        raise unknown_choice(argument, str(value), cls.list())


class DistributedType(NamedChoice):
    """How processes work together."""

    NO = "NO"
    MULTI_CPU = "MULTI_CPU"
    MULTI_GPU = "MULTI_GPU"
    MULTI_NPU = "MULTI_NPU"
    MULTI_MLU = "MULTI_MLU"
    MULTI_SDAA = "MULTI_SDAA"
    MULTI_MUSA = "MULTI_MUSA"
    MULTI_XPU = "MULTI_XPU"
    DEEPSPEED = "DEEPSPEED"
    FSDP = "FSDP"
    XLA = "XLA"
    MEGATRON_LM = "MEGATRON_LM"
    MULTI_HPU = "MULTI_HPU"
    MULTI_NEURON = "MULTI_NEURON"


class PrecisionType(NamedChoice):
    """The arithmetic that the forward and backward pass run in."""

    NO = "no"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"


class RNGType(NamedChoice):
    """The random number generators that can be brought into step across ranks."""

    TORCH = "torch"
    CUDA = "cuda"
    MLU = "mlu"
    SDAA = "sdaa"
    MUSA = "musa"
    NPU = "npu"
    XLA = "xla"
    XPU = "xpu"
    HPU = "hpu"
    NEURON = "neuron"
    GENERATOR = "generator"


class LoggerType(NamedChoice):
    """The trackers known by name, and ``all`` for every one that is installed."""

    ALL = "all"
    AIM = "aim"
    TENSORBOARD = "tensorboard"
    WANDB = "wandb"
    TRACKIO = "trackio"
    COMETML = "comet_ml"
    MLFLOW = "mlflow"
    CLEARML = "clearml"
    DVCLIVE = "dvclive"
    SWANLAB = "swanlab"


class DDPCommunicationHookType(NamedChoice):
    """Gradient compression in DistributedDataParallel."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"
    POWER_SGD = "power_sgd"
    BATCHED_POWER_SGD = "batched_power_sgd"
