"""A batch in parts whose gradients add up, as `fernn train --micro-batch` takes it: less memory.

FERNN-V^T_2 at the batch of its row, whole, in halves and in quarters, each step as a CUDA graph.
"""

import torch

from benchmarks.gpu.row import timed
from benchmarks.gpu.translation import ROWS

NAME, PARTS = "FERNN-V^T_2", (1, 2, 4)


def run() -> dict[str, object]:
    row = ROWS[NAME]
    torch.manual_seed(0)
    model = row.ours()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=False):
        points = [
            {"parts": n}
            | timed(row, model, row.batch, autocast=True, graph=True, runs=row.runs, parts=n)
            for n in PARTS
        ]
    return {"row": NAME, "points": points}
