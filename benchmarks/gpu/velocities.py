"""Time and memory of a training step against |V|: 1 to 11 x-velocities, in both forms.

The models are those of the recipes `runtime/v1`, `runtime/v3` … `runtime/v11`, whose velocities lie
evenly about rest. A number of velocities is left out of the comparison, and its reason told, where
the two forms are not one function. Ours is timed as a graph, and from Python as the published form.
"""

import torch
from torch import nn

from benchmarks.gpu import guard
from benchmarks.gpu.row import Row, timed
from benchmarks.gpu.translation import forecast_loss, videos
from benchmarks.published import PublishedForecaster
from fernn.experiments.recipes import find

NUMBERS = range(1, 12, 2)
BATCH, RUNS = 32, 8


def run() -> dict[str, object]:
    return {"batch": BATCH, "points": [point(number) for number in NUMBERS]}


def point(number: int) -> dict[str, object]:
    """Both forms with this many velocities: what was compared, sequences a second, peak memory."""
    torch.manual_seed(0)
    row = Row(
        ours=lambda: find(f"runtime/v{number}", "paper").build().cuda(),
        published=PublishedForecaster.of,
        sample=videos,
        loss=forecast_loss,
        flops=0.0,
        needs="fernn.forecast",
        checked=BATCH,  # the kernels that are timed, which depend on it
    )
    ours = row.ours()
    published = row.published(ours)
    record = guard.check(row, published, ours)

    def measured(model: nn.Module, autocast: bool, graph: bool) -> dict[str, object]:
        return timed(row, model, BATCH, autocast, graph=graph, runs=RUNS)

    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=True):
        record["published_tf32"] = measured(published, False, graph=False)
        record["published_autocast"] = measured(published, True, graph=False)
    del published
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=False):
        record["ours_python"] = measured(ours, True, graph=False)
        record["ours"] = measured(ours, True, graph=True)
    return {"velocities": number, **record, "refusals": guard.refusals(record, row.needs)}
