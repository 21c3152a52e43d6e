"""The plain form of V-mixing computes the library's function."""

import pytest
import torch
from tolerances import error

import fernn
from benchmarks.published_mixing import PublishedMixingForecaster


def test_published_mixing_is_the_library_forecaster_with_mixing() -> None:
    model = fernn.Forecaster(
        flow=fernn.Translation(radius=2),
        hidden_channels=3,
        decoder_layers=4,
        readout="published",
        mixing=1,
    ).double()
    published = PublishedMixingForecaster.of(model)
    video = torch.rand(2, 6, 1, 7, 8).double()
    past, future = video[:, :3], video[:, 3:]
    losses = [(m(past, horizon=3) - future).square().mean() for m in (model, published)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-12)
    assert error(published.recurrent.weight.grad, model.rnn.layers[0].recurrent.weight.grad) < 1e-12
    assert error(published.inner.weight.grad, model.rnn.layers[0].input.weight.grad) < 1e-12
