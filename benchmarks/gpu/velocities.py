"""Time and memory of a training step against |V|: 1 to 11 x-velocities, in both forms.

The models are those of the recipes `runtime/v1`, `runtime/v3` … `runtime/v11`, whose velocities lie
evenly about rest. A number of velocities is left out of the comparison, and its reason told, where
the two forms do not give one loss.
"""

import torch
from torch import nn

from benchmarks.gpu.row import SAME, Row, training_step
from benchmarks.gpu.timing import Step, graphed, measure, precision
from benchmarks.gpu.translation import forecast_loss, videos
from benchmarks.published import PublishedForecaster
from fernn.experiments.recipes import find

NUMBERS = range(1, 12, 2)
BATCH, CHECKED, RUNS = 32, 4, 3


def run() -> dict[str, object]:
    return {"batch": BATCH, "points": [point(number) for number in NUMBERS]}


def point(number: int) -> dict[str, object]:
    """Both forms with this many velocities: losses, sequences a second and peak memory."""
    torch.manual_seed(0)
    ours = find(f"runtime/v{number}", "paper").build().cuda()
    published = PublishedForecaster.of(ours)
    losses = losses_of(published, ours)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=False):
        forms = {
            "published_tf32": _timed(published, autocast=False, graph=False),
            "published_autocast": _timed(published, autocast=True, graph=False),
        }
        del published
        forms["ours"] = _timed(ours, autocast=True, graph=True)
    return {"velocities": number, "losses": losses, **forms, "refusals": refused(losses)}


def losses_of(published: nn.Module, ours: nn.Module) -> dict[str, list[float]]:
    """The losses of both forms on the same batch, in float32 and with ours as timed."""
    past, future = videos(CHECKED)

    def loss(model: nn.Module, autocast: bool) -> float:
        with torch.no_grad(), precision(autocast):
            return forecast_loss(model, past, future).item()

    losses = {}
    for label, autocast in (("float32", False), ("as timed", True)):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=autocast, benchmark=False):
            losses[label] = [loss(published, False), loss(ours, autocast)]
    return losses


def refused(losses: dict[str, list[float]]) -> list[str]:
    """Why a point is not compared."""
    return [
        f"losses differ in {label}: {theirs} and {mine}"
        for label, (theirs, mine) in losses.items()
        if not abs(mine - theirs) <= SAME[label] * abs(theirs)
    ]


def _timed(model: nn.Module, *, autocast: bool, graph: bool) -> dict[str, object]:
    row = Row(
        ours=lambda: model,
        published=PublishedForecaster.of,
        sample=videos,
        loss=forecast_loss,
        flops=0.0,
    )

    def make() -> Step:
        step = training_step(row, model, BATCH, autocast)
        return graphed(step) if graph else step

    return measure(make, BATCH, RUNS)
