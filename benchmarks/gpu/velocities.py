"""Time and memory of a training step against |V|: 1 to 11 x-velocities, in both forms.

The models are those of the recipes `runtime/v1` to `runtime/v11`. A number of velocities is left
out of the comparison, and its reason told, where the two forms do not give one loss.
"""

import torch

from benchmarks.gpu import translation
from benchmarks.gpu.row import SAME, Row, losses_of, timed
from benchmarks.published import PublishedForecaster
from fernn.experiments.recipes import find

NUMBERS = range(1, 12)
BATCH, RUNS = 32, 3


def run() -> dict[str, object]:
    points = []
    for number in NUMBERS:
        torch.manual_seed(0)
        ours = find(f"runtime/v{number}", "paper").build().cuda()
        published = PublishedForecaster.of(ours)
        row = Row(
            ours=lambda model=ours: model,
            published=PublishedForecaster.of,
            sample=translation.videos,
            loss=translation.forecast_loss,
            flops=0.0,
            checked=4,
        )
        losses = losses_of(row, published, ours)
        forms = {}
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=False):
            forms["published_tf32"] = timed(row, published, BATCH, False, graph=False, runs=RUNS)
            forms["published_autocast"] = timed(row, published, BATCH, True, graph=False, runs=RUNS)
            del published
            forms["ours"] = timed(row, ours, BATCH, True, graph=True, runs=RUNS)
        points.append(
            {"velocities": number, "losses": losses, **forms, "refusals": refused(losses)}
        )
    return {"batch": BATCH, "points": points}


def refused(losses: dict[str, list[float]]) -> list[str]:
    """Why a point is not compared."""
    return [
        f"losses differ in {label}: {theirs} and {mine}"
        for label, (theirs, mine) in losses.items()
        if not abs(mine - theirs) <= SAME[label] * abs(theirs)
    ]
