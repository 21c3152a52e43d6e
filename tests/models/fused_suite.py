"""The forecaster's GPU loop against `Forecaster.forward`: predictions and every gradient.

`test_fused.py` runs this file in a process of its own, in Triton's interpreter or on a device.
"""

import os

import pytest
import torch
from tolerances import same

import fernn
from fernn.models import _fused

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.mark.parametrize(
    ("readout", "frames", "layers", "channels"),
    [("published", 3, 2, 1), ("transported", 2, 2, 1), ("published", 2, 0, 3)],
)
def test_forecast_equals_forward(
    readout: str, frames: int, layers: int, channels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Predictions and all gradients; with one image a group, weight gradients come in pairs."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    flow = fernn.Translation(velocities=[(0, 0), (1, -2), (-1, 1)])
    model = fernn.Forecaster(
        flow=flow,
        in_channels=channels,
        hidden_channels=8,
        decoder_layers=layers,
        readout=readout,
        backend="lean",
    ).to(DEVICE)
    video = torch.rand(2, frames, channels, 3, 4, device=DEVICE)
    target = torch.rand(2, 3, channels, 3, 4, device=DEVICE)
    predictions, gradients = [], []
    for forward in (model.forward, lambda *args: _fused.forecast(model, *args)):
        predicted = forward(video, 3)
        predictions.append(predicted)
        loss = (predicted - target).square().mean()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert same(predictions[1], predictions[0])
    assert all(same(mine, theirs) for theirs, mine in zip(*gradients, strict=True))
    with torch.no_grad():
        assert same(_fused.forecast(model, video, 3), predictions[0])


def test_forecast_compiles_into_one_graph() -> None:
    model = fernn.Forecaster(
        flow=fernn.Translation(velocities=[(0, 0), (1, 1)]), hidden_channels=8, decoder_layers=1
    ).to(DEVICE)
    video = torch.rand(1, 2, 1, 3, 4, device=DEVICE)
    compiled = torch.compile(
        lambda video: _fused.forecast(model, video, 2), fullgraph=True, backend="aot_eager"
    )
    got, want = compiled(video), _fused.forecast(model, video, 2)
    assert same(got, want)
    pairs = zip(
        *(torch.autograd.grad(x.square().mean(), list(model.parameters())) for x in (got, want)),
        strict=True,
    )
    assert all(same(mine, theirs) for mine, theirs in pairs)
