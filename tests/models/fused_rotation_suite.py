"""The forecaster's GPU loop in frames that turn against `Forecaster.forward`, every gradient.

`test_fused_rotation.py` runs this file in a process of its own, in Triton's interpreter or on a
device.
"""

import os

import pytest
import torch
from tolerances import TOLERANCE, error, same

import fernn
from fernn.models import _fused_rotation

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
HALF = (
    torch.float16 if DEVICE == "cpu" else torch.bfloat16
)  # the interpreter multiplies no bfloat16
FLOWS = {
    "turns": fernn.Rotation(count=1, degrees=20),
    "orientations": fernn.Rotation(velocities=[0, 90, -45], group=fernn.SE2(8)),
    "rigid motions": fernn.RigidMotion([(0, 0, 0), (0, 0.5, 0), (0, -0.25, 1)]),
}


def forecaster(flow: str, **options: object) -> fernn.Forecaster:
    width = 1 if flow == "orientations" else 8
    made: dict = {"hidden_channels": width, "decoder_layers": 1, "backend": "lean"} | options
    return fernn.Forecaster(flow=FLOWS[flow], frame="comoving", **made).to(DEVICE)


@pytest.mark.parametrize(
    ("flow", "options", "frames"),
    [
        ("turns", {"readout": "published", "decoder_layers": 2}, 3),
        ("turns", {"in_channels": 2, "decoder_layers": 0, "kernel_size": 5}, 2),
        ("turns", {}, 1),
        ("turns", {"readout": "published"}, 1),
        ("orientations", {"readout": "published"}, 2),
        ("rigid motions", {}, 2),
    ],
)
def test_forecast_equals_forward(
    flow: str, options: dict, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    model = forecaster(flow, **options)
    channels = options.get("in_channels", 1)
    video = torch.rand(2, frames, channels, 5, 6, device=DEVICE)
    target = torch.rand(2, 2, channels, 5, 6, device=DEVICE)
    predictions, gradients = [], []
    for forward in (model.forward, lambda *args: _fused_rotation.forecast(model, *args)):
        predicted = forward(video, 2)
        predictions.append(predicted)
        loss = (predicted - target).square().mean()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert same(predictions[1], predictions[0])
    assert all(same(mine, theirs) for theirs, mine in zip(*gradients, strict=True))
    with torch.no_grad():
        assert same(_fused_rotation.forecast(model, video, 2), predictions[0])


def test_forecast_in_half_precision_under_autocast() -> None:
    model = forecaster("turns")
    video, target = (torch.rand(2, n, 1, 5, 6, device=DEVICE) for n in (3, 2))
    want = model(video, 2)
    with torch.autocast(DEVICE, HALF):
        plain, got = model(video, 2), _fused_rotation.forecast(model, video, 2)
    assert got.dtype == plain.dtype == HALF
    # As near to float32 as plain torch is in the same precision, or nearer.
    near = TOLERANCE[torch.bfloat16]
    assert error(got, want, norm=2) < max(near, 2 * error(plain, want, norm=2))
    mine, rough, theirs = (
        torch.autograd.grad((x - target).square().mean(), list(model.parameters()))
        for x in (got, plain, want)
    )
    assert all(a.dtype == torch.float32 for a in mine)
    for a, r, b in zip(mine, rough, theirs, strict=True):
        assert error(a, b, norm=2) < max(near, 2 * error(r, b, norm=2))


def test_forecast_compiles_into_one_graph() -> None:
    model = forecaster("turns")
    video = torch.rand(1, 2, 1, 3, 4, device=DEVICE)
    compiled = torch.compile(
        lambda video: _fused_rotation.forecast(model, video, 2),
        fullgraph=True,
        backend="aot_eager",
    )
    got, want = compiled(video), _fused_rotation.forecast(model, video, 2)
    assert same(got, want)
    pairs = zip(
        *(torch.autograd.grad(x.square().mean(), list(model.parameters())) for x in (got, want)),
        strict=True,
    )
    assert all(same(mine, theirs) for mine, theirs in pairs)


def test_frozen_weights_keep_nothing_and_one_learned_gets_its_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fernn.ops.conv_stack import triton as stack

    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    kept, memory = [], stack.memory
    monkeypatch.setattr(stack, "memory", lambda *args: kept.append(args[-1]) or memory(*args))
    model, video = forecaster("turns"), torch.rand(1, 2, 1, 5, 6, device=DEVICE)
    model.requires_grad_(requires_grad=False)
    assert not _fused_rotation.forecast(model, video, 2).requires_grad
    assert kept == [0]
    weight = model.rnn.layers[0].input.weight.requires_grad_()
    got, want = (
        torch.autograd.grad(x.square().mean(), weight)[0]
        for x in (_fused_rotation.forecast(model, video, 2), model(video, 2))
    )
    assert same(got, want)
