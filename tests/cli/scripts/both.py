"""Rank 1 raises first, but rank 0, which raises because of it, is the first to have ended.

Argument: a named pipe.
"""

import os
import sys
import threading
from pathlib import Path

pipe = Path(sys.argv[1])


def after_the_exception(kind, error, trace):
    pipe.open("w").close()  # lets rank 0 go on
    threading.Event().wait()


if os.environ["RANK"] == "1":
    sys.excepthook = after_the_exception
    raise ValueError("the cause")
pipe.read_text()
raise ValueError("the consequence")
