"""``python -m benchmarks [name ...]``: measure, side by side in one sitting."""

from __future__ import annotations

import argparse
import importlib

NAMES = ("startup", "loop", "log")


def main() -> None:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}")
    names = parser.parse_args().names
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}: write one of {', '.join(NAMES)}")
    for name in names or NAMES:
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
