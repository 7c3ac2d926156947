"""Say which processes this rank consists of, and wait for ever.

With ``stubborn`` as the argument, signals that ask for an end are answered with a line, no more.
"""

import os
import signal
import subprocess
import sys

stubborn = "stubborn" in sys.argv
child = "import signal\n"
for name in ("SIGTERM", "SIGINT") if stubborn else ():
    signal.signal(signal.Signals[name], lambda *_: os.write(1, b"asked\n"))
    child += f"signal.signal(signal.{name}, signal.SIG_IGN)\n"
process = subprocess.Popen(
    [sys.executable, "-c", f"{child}signal.pause()"], stderr=subprocess.DEVNULL
)
print(os.getpid(), process.pid, flush=True)
while True:
    signal.pause()
