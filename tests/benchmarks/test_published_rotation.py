"""The published rotation formulation that speed is measured against is the library's function."""

import pytest
import torch
from tolerances import error

import fernn
from benchmarks.published_rotation import PublishedRotationForecaster

_DTYPE = torch.float64


@pytest.mark.parametrize("count", [0, 2])
def test_published_rotation_forecaster_is_the_library_forecaster(count: int) -> None:
    model = fernn.Forecaster(
        flow=fernn.Rotation(count=count, degrees=30, group=fernn.SE2(12)),
        hidden_channels=2,
        decoder_layers=2,
        readout="published",
        frame="lab",
    ).to(_DTYPE)
    published = PublishedRotationForecaster.of(model)
    video = torch.rand(2, 6, 1, 7, 7, dtype=_DTYPE)
    past, future = video[:, :3], video[:, 3:]
    losses = [(m(past, horizon=3) - future).square().mean() for m in (model, published)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    got = [p.grad for p in published.parameters()]
    want = [p.grad for p in model.parameters()]
    assert len(got) == len(want) == 8
    for a, b in zip(got, want, strict=True):
        assert error(a, b) < 1e-11
