"""A prediction on a GPU against pool and decoder: images and every gradient.

`test_predict.py` runs this file in a process of its own, in Triton's interpreter or on a device.
"""

import os

import pytest
import torch
from tolerances import same

import fernn
from fernn.models import _predict

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.mark.parametrize("ahead", [0, 1])
def test_predict_is_pool_and_decoder(ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    flow = fernn.Translation(velocities=[(0, 0), (1, -2), (-1, 1)])
    model = fernn.Forecaster(
        flow=flow, in_channels=2, hidden_channels=5, decoder_layers=2, backend="lean"
    ).to(DEVICE)
    state = model.rnn.observe(torch.rand(2, 3, 2, 3, 4, device=DEVICE))
    want = model.decoder(model.pool(state.lab(ahead)))
    got = _predict.predict(model, state, ahead)
    assert same(got, want)
    grad = torch.randn_like(want)
    pairs = [
        torch.autograd.grad(x, list(model.parameters()), grad, retain_graph=True)
        for x in (got, want)
    ]
    assert all(same(mine, theirs) for mine, theirs in zip(*pairs, strict=True))
