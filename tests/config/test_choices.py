"""Closed lists of names, and the answer to a name that is none of them."""

from __future__ import annotations

import pickle

import pytest

from rankzero.config.choices import nearest_first, unknown_choice
from rankzero.config.enums import DistributedType, LoggerType, PrecisionType


def test_the_names_most_like_what_was_written_come_first() -> None:
    assert nearest_first("wandbb", ["tensorboard", "mlflow", "wandb"])[0] == "wandb"
    assert nearest_first("?", ["b", "a"]) == ["b", "a"]
    message = str(unknown_choice("log_with", "tensorbord", ["wandb", "tensorboard"]))
    assert message == (
        "log_with='tensorbord' is not known. Did you mean 'tensorboard'? "
        "Known: 'tensorboard', 'wandb'."
    )
    assert "Did you mean" not in str(unknown_choice("log_with", "zzz", ["wandb"]))


def test_a_member_is_its_value() -> None:
    assert PrecisionType.BF16 == "bf16"
    assert f"{LoggerType.TENSORBOARD}" == str(LoggerType.TENSORBOARD) == "tensorboard"
    assert {DistributedType.NO: 1}["NO"] == 1
    assert pickle.loads(pickle.dumps(LoggerType.WANDB)) is LoggerType.WANDB
    assert "fp16" in PrecisionType.list()


def test_a_member_is_found_in_any_letter_case_or_turned_down_by_name() -> None:
    assert PrecisionType.parse("mixed_precision", "BF16") is PrecisionType.BF16
    assert PrecisionType.parse("mixed_precision", PrecisionType.NO) is PrecisionType.NO
    with pytest.raises(ValueError, match=r"mixed_precision='bf61'.*Did you mean 'bf16'"):
        PrecisionType.parse("mixed_precision", "bf61")
