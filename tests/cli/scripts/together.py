"""Exchange something in a launch that is sure to run at the same time as another one.

Arguments: a named pipe, and whether this launch reads ("r") or writes ("w") there.
"""

import json
import os
import sys
from pathlib import Path

import torch

from rankzero import Accelerator

pipe, way = sys.argv[1:]
accelerator = Accelerator()
if accelerator.is_main_process:
    Path(pipe).open(way).close()  # goes on when the other launch has come here too
accelerator.wait_for_everyone()
port = int(os.environ["MASTER_PORT"])
found = {
    "ports": accelerator.gather(torch.tensor([port])).tolist(),
    "mixed_precision": accelerator.mixed_precision,
    "gradient_accumulation_steps": accelerator.gradient_accumulation_steps,
    "device": str(accelerator.device),
}
print(json.dumps({str(accelerator.process_index): found}), flush=True)
