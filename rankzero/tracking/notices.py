"""The one way in which tracking says that something is wrong: a logged warning, once a subject."""

from __future__ import annotations

import logging

logger = logging.getLogger("rankzero.tracking")


class Notices:
    """Warnings of one run; each subject is warned about once."""

    def __init__(self) -> None:
        self._given: set[str] = set()

    def warn_once(self, subject: str, message: str) -> None:
        """Log ``message`` as a warning unless ``subject`` was warned about before."""
        if subject in self._given:
            return
        self._given.add(subject)
        logger.warning(message)
