"""Forecasts under rotation, V^R_4: 40×40, 10 frames in, 10 out, decoder of 4 + 1.

The published form is the recurrence on SE(2), 32 channels in 36 orientations, in the lab frame. The
first row is ours on the same group with the same weights in co-moving frames: one function up to
where it interpolates, so it is compared with the co-moving form in plain torch; a test holds
the published form to the library's lab frame. The second row is another model for the same task,
128 ordinary channels in co-moving frames, and its ratio is one of training sequences, not of one
function.
"""

import copy

import torch
from torch import Tensor

from benchmarks.gpu.row import Row
from benchmarks.gpu.translation import FRAMES, HORIZON, LAYERS, forecast_loss
from benchmarks.published_rotation import PublishedRotationForecaster
from fernn import SE2, Forecaster, Rotation

CANVAS, COUNT, ORIENTATIONS = 40, 4, 36


def flops(channels: int) -> float:
    """The arithmetic of one training sequence; k_1 and W ⋆ k_1 do not depend on ν."""
    pixels, velocities = CANVAS**2, 2 * COUNT + 1
    conv = 2 * 9 * channels**2 * pixels
    thin = 2 * 9 * channels * pixels  # a convolution with one channel on one side
    recurrent = 3 * conv * (1 + velocities * (FRAMES + HORIZON - 2))
    drive = 2 * thin * (1 + velocities * (FRAMES + HORIZON - 1))
    return float(recurrent + drive + 3 * HORIZON * (LAYERS * conv + thin))


def videos(batch: int) -> tuple[Tensor, Tensor]:
    """Sparse random canvases, each turning with a velocity of V^R_4: [B, T, 1, H, W], twice."""
    random = torch.Generator().manual_seed(0)
    canvas = torch.rand(batch, 1, CANVAS, CANVAS, generator=random)
    canvas = canvas * (torch.rand(canvas.shape, generator=random) < 0.2)
    flow = Rotation(count=COUNT)
    velocity = flow.velocities[torch.randint(len(flow), (batch,), generator=random)]
    still = canvas[:, None].expand(-1, FRAMES + HORIZON, -1, -1, -1)
    moved = flow.act_sequence(still, velocity).cuda()
    return moved[:, :FRAMES].contiguous(), moved[:, FRAMES:].contiguous()


def forecaster(group: SE2 | None, channels: int) -> Forecaster:
    return Forecaster(
        flow=Rotation(count=COUNT, group=group),
        hidden_channels=channels,
        decoder_layers=LAYERS,
        readout="published",
        frame="comoving",
        backend="triton",
    ).cuda()


def plain(model: Forecaster) -> Forecaster:
    """The same function with a copy of the weights, in plain torch."""
    same = copy.deepcopy(model)
    same.rnn.backend = "reference"
    return same


ROWS = {
    "FERNN-V^R_4, SE(2)": Row(
        ours=lambda: forecaster(SE2(ORIENTATIONS), 32),
        published=PublishedRotationForecaster.of,
        same=plain,
        sample=videos,
        loss=forecast_loss,
        flops=flops(32 * ORIENTATIONS),
        needs="fernn.comoving_advance",
        batch=16,
        published_batch=16,
        runs=4,  # of 0.7 seconds each, in two forms
        published_runs=2,  # of two seconds each
        known=(7.8, None),
        checked=2,
    ),
    "FERNN-V^R_4, co-moving": Row(
        ours=lambda: forecaster(None, 128),
        published=plain,
        sample=videos,
        loss=forecast_loss,
        flops=flops(128),
        needs="fernn.comoving_advance",
        rival="FERNN-V^R_4, SE(2)",
    ),
}
