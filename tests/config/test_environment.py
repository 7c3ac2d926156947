"""Settings from the environment: which variable holds, and what is turned down."""

from __future__ import annotations

import pytest

from rankzero.config.environment import find_setting, parse_bool, read_bool, read_int, read_text


def test_the_own_variable_goes_before_accelerates_and_an_empty_one_is_unset() -> None:
    both = {"RANKZERO_MIXED_PRECISION": "bf16", "ACCELERATE_MIXED_PRECISION": "fp16"}
    assert find_setting("MIXED_PRECISION", both) == ("RANKZERO_MIXED_PRECISION", "bf16")
    emptied = {**both, "RANKZERO_MIXED_PRECISION": " "}
    assert find_setting("MIXED_PRECISION", emptied) == ("ACCELERATE_MIXED_PRECISION", "fp16")
    assert find_setting("MIXED_PRECISION", {}) is None
    assert read_text("MIXED_PRECISION", both) == "bf16"
    assert read_text("MIXED_PRECISION", {}) is None


@pytest.mark.parametrize("text", ["1", "true", "TRUE", "yes", "on", " y "])
def test_words_for_yes(text: str) -> None:
    assert parse_bool("X", text)


@pytest.mark.parametrize("text", ["0", "false", "No", "off", "n"])
def test_words_for_no(text: str) -> None:
    assert not parse_bool("X", text)


def test_a_word_that_is_neither_is_turned_down_with_the_variable_named() -> None:
    with pytest.raises(ValueError, match=r"RANKZERO_USE_CPU='maybe'.*true"):
        read_bool("USE_CPU", {"RANKZERO_USE_CPU": "maybe"})
    assert read_bool("USE_CPU", {}, default=True)


def test_whole_numbers() -> None:
    assert read_int("STEPS", {"RANKZERO_STEPS": "12"}) == 12
    assert read_int("STEPS", {}) is None
    with pytest.raises(ValueError, match=r"ACCELERATE_STEPS='1\.5' is not a whole number"):
        read_int("STEPS", {"ACCELERATE_STEPS": "1.5"})
