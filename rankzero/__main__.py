"""``python -m rankzero``: the same as the ``rankzero`` command."""

from __future__ import annotations

import sys

from rankzero.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
