"""The published formulation that speed is measured against computes the library's function."""

import pytest
import torch
from tolerances import error

import fernn
from benchmarks.published import PublishedForecaster

_DTYPE = torch.float64
FLOWS = [fernn.Translation(radius=radius) for radius in (0, 1, 2)]
FLOWS += [fernn.Translation(velocities=[(0, 0), (0, 1), (0, 3)])]


@pytest.mark.parametrize("flow", FLOWS, ids=str)
def test_published_forecaster_is_the_library_forecaster(flow: fernn.Translation) -> None:
    model = fernn.Forecaster(
        flow=flow,
        hidden_channels=3,
        decoder_layers=4,
        readout="published",
    ).to(_DTYPE)
    published = PublishedForecaster.of(model)
    video = torch.rand(2, 7, 1, 7, 8, dtype=_DTYPE)
    past, future = video[:, :3], video[:, 3:]
    losses = [(m(past, horizon=4) - future).square().mean() for m in (model, published)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    got = [p.grad for p in published.parameters()]
    want = [p.grad for p in model.parameters()]
    assert len(got) == len(want) == 12
    for a, b in zip(got, want, strict=True):
        assert error(a, b) < 1e-12
