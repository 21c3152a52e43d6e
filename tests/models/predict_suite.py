"""A prediction on a GPU against pool and decoder: images and every gradient.

`test_predict.py` runs this file in a process of its own, in Triton's interpreter or on a device.
"""

import os

import pytest
import torch
from tolerances import same
from torch.export import Dim

import fernn
from fernn.models import _predict
from fernn.ops.flow_pool import triton as pool
from fernn.ops.flow_step import triton as step

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


def test_forecast_step_by_step_exports_for_batches_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One observed frame, which the loop as one operator does not take."""
    model = fernn.Forecaster(flow=fernn.Translation(radius=1), hidden_channels=8, decoder_layers=0)
    model = model.to(DEVICE).eval()
    if DEVICE == "cpu":
        monkeypatch.setattr(_predict, "fits", lambda *_: True)
        monkeypatch.setattr(_predict, "flow_pool", pool.flow_pool)
        monkeypatch.setattr("fernn.nn._rnn.flow_step", lambda *a, backend: step.flow_step(*a))
    video = torch.rand(3, 1, 1, 4, 4, device=DEVICE)
    shapes = ({0: Dim.DYNAMIC}, None)
    program = torch.export.export(model, (video[:2], 2), dynamic_shapes=shapes)
    calls = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    names = ("flow_step", "flow_pool", "torus_conv")
    assert {f"fernn.{name}.default" for name in names} <= calls
    assert same(program.module()(video, 2), model(video, 2))
