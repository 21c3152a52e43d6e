"""One frame at batch 1, FERNN-V^T_2: the published step launched by Python, and `fernn.Stream`.

What is timed is what somebody waits for: a frame goes in, one step of the recurrence is taken, its
forecast comes out and the device is done. With the published readout a forecast for every frame
takes a second step, which is not kept; that is timed for both forms as well.
"""

import torch
from torch import Tensor

from benchmarks.gpu.timing import latency, precision
from benchmarks.gpu.translation import CHANNELS, LAYERS, videos
from benchmarks.published import PublishedForecaster
from fernn import Forecaster, Stream, Translation

NEAR = 2e-2  # relative to the largest value: a forecast in bfloat16 beside one in float32
RUNS = 200


class Published:
    """The published loop, frame by frame: `steps` of them for each, of which the first is kept."""

    def __init__(self, form: PublishedForecaster, frame: Tensor, steps: int) -> None:
        self.form, self.steps = form, steps
        slices = len(form.velocities), form.hidden_channels
        self.h = frame.new_zeros(len(frame), *slices, *frame.shape[2:])

    @torch.no_grad()
    def __call__(self, frame: Tensor) -> Tensor:
        self.h = h = self.form.step(self.h, frame)
        for _ in range(self.steps - 1):
            h = self.form.step(h, frame)
        return self.form.read(h)


def run() -> dict[str, object]:
    past, _ = videos(1)
    torch.manual_seed(0)
    models = {
        readout: Forecaster(
            flow=Translation(radius=2),
            hidden_channels=CHANNELS,
            decoder_layers=LAYERS,
            readout=readout,
        ).cuda()
        for readout in ("published", "transported")
    }
    models["transported"].load_state_dict(models["published"].state_dict())
    form = PublishedForecaster.of(models["published"])
    streams = {readout: Stream(model) for readout, model in models.items()}
    record: dict[str, object] = {"errors": _errors(form, models["transported"], streams, past)}
    record["programs"] = {name: type(s._program).__name__ for name, s in streams.items()}
    frame = past[:, 0]
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=True, benchmark=True):
        for name, autocast in (("published_tf32", False), ("published_autocast", True)):
            for steps, suffix in ((1, ""), (2, "_two_steps")):
                published = Published(form, frame, steps)
                with precision(autocast):
                    record[name + suffix] = latency(lambda p=published: p(frame), RUNS)
        for readout, name in (("transported", "ours"), ("published", "ours_two_steps")):
            with precision(True):
                record[name] = latency(lambda s=streams[readout]: s(frame), RUNS)
    return record | verdict(record)


def verdict(record: dict) -> dict[str, object]:
    """How much sooner a forecast is there, or why that is not said."""
    refusals = [
        f"the forecasts of {name} differ by {error:.1e}"
        for name, error in record["errors"].items()
        if not error <= NEAR
    ]
    refusals += [
        f"the stream of {name} ran as {program}, not in the kernels for one frame"
        for name, program in record["programs"].items()
        if program != "Fused"
    ]
    if refusals:
        return {"refusals": refusals}
    times = {
        f"times_{form}{suffix}": record[form + suffix]["median_us"]
        / record[f"ours{suffix}"]["median_us"]
        for form in ("published_tf32", "published_autocast")
        for suffix in ("", "_two_steps")
    }
    return {"refusals": refusals} | times


@torch.no_grad()
def _errors(
    form: PublishedForecaster, transported: Forecaster, streams: dict[str, Stream], video: Tensor
) -> dict[str, float]:
    """Forecasts of the last frame: streams as timed against whole videos in float32."""
    errors = {}
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False, benchmark=False):
        wanted = {
            "published": form(video, horizon=1)[:, 0],
            "transported": transported(video, horizon=1)[:, 0],
        }
        for readout, want in wanted.items():
            with precision(True):
                for frame in video.unbind(1):
                    answer = streams[readout](frame)
            errors[readout] = float((answer - want).abs().max() / want.abs().max())
        stepwise = Published(form, video[:, 0], 2)
        for frame in video.unbind(1):
            answer = stepwise(frame)
        want = wanted["published"]
        errors["the published form"] = float((answer - want).abs().max() / want.abs().max())
    return errors
