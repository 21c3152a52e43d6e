"""Forecasts under translation: 28×28, 128 channels, 10 frames in, 10 out, decoder of 4 + 1."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.gpu.row import Row
from benchmarks.published import PublishedForecaster
from fernn import Forecaster, Translation

CANVAS, CHANNELS, FRAMES, HORIZON, LAYERS = 28, 128, 10, 10, 4


def flops(radius: int) -> float:
    """The arithmetic of one training sequence; h_1 and W ⋆ h_1 do not depend on ν."""
    pixels, velocities = CANVAS**2, (2 * radius + 1) ** 2
    conv = 2 * 9 * CHANNELS**2 * pixels
    thin = 2 * 9 * CHANNELS * pixels  # a convolution with one channel on one side
    recurrent = 3 * conv * (1 + velocities * (FRAMES + HORIZON - 2))
    decoder = 3 * HORIZON * (LAYERS * conv + thin)
    return float(recurrent + decoder + 2 * (FRAMES + HORIZON) * thin)


def videos(batch: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Sparse random canvases, each moving with a velocity of V^T_2: [B, T, 1, H, W], twice."""
    random = torch.Generator().manual_seed(seed)
    canvas = torch.rand(batch, 1, CANVAS, CANVAS, generator=random)
    canvas = canvas * (torch.rand(canvas.shape, generator=random) < 0.2)
    velocity = torch.randint(-2, 3, (batch, 2), generator=random)
    moved = (
        Translation(radius=2)
        .act(
            canvas[:, None].expand(-1, FRAMES + HORIZON, -1, -1, -1),
            velocity[:, None].expand(-1, FRAMES + HORIZON, -1),
            torch.arange(FRAMES + HORIZON).expand(batch, -1),
        )
        .cuda()
    )
    return moved[:, :FRAMES].contiguous(), moved[:, FRAMES:].contiguous()


def forecast_loss(model: nn.Module, past: Tensor, future: Tensor) -> Tensor:
    return F.mse_loss(model(past, horizon=HORIZON).float(), future)


def forecaster(radius: int) -> Forecaster:
    return Forecaster(
        flow=Translation(radius=radius),
        hidden_channels=CHANNELS,
        decoder_layers=LAYERS,
        readout="published",
        backend="triton",
    ).cuda()


def _row(radius: int, published_batch: int, known: tuple[float, float | None]) -> Row:
    return Row(
        ours=lambda: forecaster(radius),
        published=PublishedForecaster.of,
        sample=videos,
        loss=forecast_loss,
        flops=flops(radius),
        needs="fernn.forecast",
        published_batch=published_batch,
        known=known,
        checked=64,  # whole tiles of images of one ν, as in a batch: the kernels that are timed
    )


ROWS = {
    "FERNN-V^T_2": _row(2, 64, (87.0, 144.0)),
    "FERNN-V^T_1": _row(1, 128, (287.0, None)),
    "G-RNN": _row(0, 128, (1148.0, None)),
}
