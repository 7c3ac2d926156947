"""The rank-aware logger."""

from __future__ import annotations

import io
import logging

import pytest
import torch.distributed as dist

from rankzero.logging import get_logger
from rankzero.state import PartialState
from tests.ranks import run_ranks


def _log(make_state: bool) -> str:
    if make_state:
        PartialState()
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    logger = get_logger("ranks", log_level="info")
    logger.logger.addHandler(handler)
    logger.info("main")
    logger.info("all", main_process_only=False)
    logger.debug("hidden", main_process_only=False)
    for _ in range(2):
        logger.warning_once("once %s", "only")
    assert make_state or not dist.is_initialized()
    return out.getvalue()


@pytest.mark.parametrize("make_state", [False, True])
def test_rank_zero_logs_unless_all_are_asked_to_with_and_without_a_group(make_state: bool) -> None:
    first, second = run_ranks(_log, 2, make_state)
    assert first.splitlines() == ["main", "all", "once only"]
    assert second.splitlines() == ["all"]


def _in_order(path: str) -> None:
    state = PartialState()
    handler = logging.FileHandler(path)
    logger = get_logger("ordered", log_level="INFO" if state.process_index != 1 else "ERROR")
    logger.logger.addHandler(handler)
    for _ in range(3):
        logger.info("rank %s", state.process_index, in_order=True)


def test_in_order_ranks_log_one_after_the_other_whatever_their_levels(tmp_path) -> None:
    path = tmp_path / "log"
    run_ranks(_in_order, 3, str(path))
    assert path.read_text().splitlines() == ["rank 0", "rank 2"] * 3


def test_a_debug_level_in_the_environment_needs_no_state(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ACCELERATE_LOG_LEVEL", "debug")
    logger = get_logger("debugging")
    logger.debug("message")
    assert caplog.messages == ["message"]
    assert caplog.records[0].filename == "test_logging.py"
    logger.logger.setLevel(logging.NOTSET)
