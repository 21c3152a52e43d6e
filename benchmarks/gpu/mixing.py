"""Forecasts with V-mixing of radius 1 on V^T_2, sizes as in `translation`."""

from benchmarks.gpu.row import Row
from benchmarks.gpu.translation import (
    CANVAS,
    CHANNELS,
    FRAMES,
    HORIZON,
    LAYERS,
    flops,
    forecast_loss,
    videos,
)
from benchmarks.published_mixing import PublishedMixingForecaster
from fernn import Forecaster, Translation

PAIRS = 13**2  # (ν, γ) of V^T_2 with |γ − ν| ≤ 1: 3·5 − 2 along an axis
SUMS = 3**2  # sets of differences that a ν of V^T_2 has: at either end of an axis or between


def mixing_flops() -> float:
    """The arithmetic of one training sequence: what lies outside of V is not counted.

    h_1 does not depend on ν, so W ⋆ h_1 is one convolution for each set of differences.
    """
    conv = 3 * 2 * 9 * CHANNELS**2 * CANVAS**2
    steps = FRAMES + HORIZON - 2
    return flops(0) + conv * (SUMS - 1 + (PAIRS - 1) * steps)


def forecaster() -> Forecaster:
    return Forecaster(
        flow=Translation(radius=2),
        hidden_channels=CHANNELS,
        decoder_layers=LAYERS,
        readout="published",
        mixing=1,
        backend="auto",  # in float32, where losses are compared, no kernel mixes
    ).cuda()


ROWS = {
    "FERNN-V^T_2, V-mixing": Row(
        ours=forecaster,
        published=PublishedMixingForecaster.of,
        sample=videos,
        loss=forecast_loss,
        flops=mixing_flops(),
        needs="fernn.flow_mix",
        batch=64,
        published_batch=16,
        checked=20,  # more than one tile of samples
    )
}
