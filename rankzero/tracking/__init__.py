"""Tracking: what a run reports, written once to a journal on disk and delivered to any tracker.

``init`` serves a plain script; ``Hub`` is what ``Accelerator`` is built on; ``reader`` reads runs
back. Importing this package imports neither torch nor a tracker's library.

Warnings are given through the logger ``rankzero.tracking``, each once a run.
"""

from __future__ import annotations

from rankzero.tracking.hub import Hub
from rankzero.tracking.run import RunInfo
from rankzero.tracking.script import init

__all__ = ["Hub", "RunInfo", "init"]
