"""The forecaster's GPU loop against `Forecaster.forward`: predictions and every gradient.

`test_fused.py` runs this file in a process of its own, in Triton's interpreter or on a device.
"""

import os

import pytest
import torch
from tolerances import TOLERANCE, error, same

import fernn
from fernn.models import _fused, _rollout
from fernn.ops.flow_step import _comoving

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
# The interpreter multiplies no bfloat16, and is slow.
HALVES = [torch.float16] if DEVICE == "cpu" else [torch.float16, torch.bfloat16]
BATCH, CANVAS = (3, (4, 5)) if DEVICE == "cpu" else (72, (8, 12))


@pytest.mark.parametrize(
    ("readout", "frames", "horizon", "layers", "channels", "images"),
    [
        ("published", 3, 3, 2, 1, _rollout._IMAGES),
        ("transported", 2, 3, 2, 1, _rollout._IMAGES),
        ("published", 2, 4, 0, 3, 1),
        ("transported", 2, 4, 0, 1, 1),
    ],
)
def test_forecast_equals_forward(
    readout: str,
    frames: int,
    horizon: int,
    layers: int,
    channels: int,
    images: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Predictions and all gradients, the weight's over all times at once.

    Where one image is enough it comes in pairs: two in the published form, and one and a single
    time in the transported form, which takes a step less.
    """
    monkeypatch.setattr(_rollout, "_IMAGES", images)
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
    target = torch.rand(2, horizon, channels, 3, 4, device=DEVICE)
    predictions, gradients = [], []
    for forward in (model.forward, lambda *args: _fused.forecast(model, *args)):
        predicted = forward(video, horizon)
        predictions.append(predicted)
        loss = (predicted - target).square().mean()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    assert same(predictions[1], predictions[0])
    assert all(same(mine, theirs) for theirs, mine in zip(*gradients, strict=True))
    layouts = ([x.stride() for x in tensors] for tensors in (gradients[1], model.parameters()))
    assert next(layouts) == next(layouts)  # as the operator promises to a compiler
    with torch.no_grad():
        assert same(_fused.forecast(model, video, horizon), predictions[0])


@pytest.mark.parametrize("readout", ["published", "transported"])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_training_step_in_half_precision(
    readout: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As near to float32 as plain torch is in that precision, up to a factor of two.

    On a device the model has the channels, batch and canvas that the kernel for Hopper takes.
    """
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    plain = fernn.Forecaster(
        flow=fernn.Translation(velocities=[(0, 0), (1, -2), (-1, 1)]),
        hidden_channels=8 if DEVICE == "cpu" else 128,
        decoder_layers=2,
        readout=readout,
        backend="lean",
    ).to(DEVICE)
    video, target = (torch.rand(BATCH, n, 1, *CANVAS, device=DEVICE) for n in (3, 2))

    def results(forward, *, half: bool) -> list[torch.Tensor]:
        with torch.autocast(DEVICE, dtype, enabled=half):
            predicted = forward(video, 2)
        assert predicted.dtype == (dtype if half else torch.float32)
        loss = (predicted.float() - target).square().sum() / 16  # float16 holds its gradients
        return [predicted, *torch.autograd.grad(loss, list(plain.parameters()))]

    want, rough = (results(plain, half=half) for half in (False, True))
    got = results(lambda *args: _fused.forecast(plain, *args), half=True)
    scale = torch.finfo(dtype).eps / torch.finfo(torch.bfloat16).eps
    for mine, theirs, exact in zip(got, rough, want, strict=True):
        cost = max(TOLERANCE[torch.bfloat16] * scale, error(theirs, exact, norm=2))
        assert error(mine, exact, norm=2) < 2 * cost


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


class _Cut(torch.autograd.Function):
    """Passes its input on and no gradient back, as checkpoints and custom losses may."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return None


def test_a_forecast_without_a_gradient_gives_none() -> None:
    model = fernn.Forecaster(hidden_channels=8, decoder_layers=0).to(DEVICE)
    predicted = _fused.forecast(model, torch.rand(1, 2, 1, 3, 4, device=DEVICE), 1)
    bias = model.decoder[0].bias
    (_Cut.apply(predicted).sum() + bias.sum()).backward()
    assert torch.equal(bias.grad, torch.ones_like(bias))
    assert all(p.grad is None for p in model.parameters() if p is not bias)


def test_the_first_state_is_convolved_once_for_all_velocities(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """h_1 does not depend on ν; with no layer in the decoder, all here is the recurrence."""
    seen, convolve = [], _comoving.convolve
    monkeypatch.setattr(_comoving, "convolve", lambda x, *a: seen.append(len(x)) or convolve(x, *a))
    flow = fernn.Translation(velocities=[(0, 0), (1, -2), (-1, 1)])
    model = fernn.Forecaster(flow=flow, hidden_channels=8, decoder_layers=0).to(DEVICE)
    with torch.no_grad():
        _fused.forecast(model, torch.rand(2, 3, 1, 3, 4, device=DEVICE), 1)
    assert seen == [1, 3]


def test_states_are_kept_for_gradients_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, forecast = [], _rollout._forecast
    monkeypatch.setattr(_rollout, "_forecast", lambda *a: kept.append(a[-1]) or forecast(*a))
    model = fernn.Forecaster(hidden_channels=8, decoder_layers=0).to(DEVICE)
    video = torch.rand(1, 2, 1, 3, 4, device=DEVICE)
    _fused.forecast(model, video, 1)
    with torch.no_grad():
        _fused.forecast(model, video, 1)
    model.requires_grad_(requires_grad=False)
    _fused.forecast(model, video, 1)
    model.decoder[0].bias.requires_grad_()
    _fused.forecast(model, video, 1)
    assert kept == [True, False, False, True]


@pytest.mark.parametrize("frozen", ["rnn", "decoder", "decoder.0.weight"])
def test_frozen_parameters_leave_the_other_gradients(frozen: str) -> None:
    model = fernn.Forecaster(
        flow=fernn.Translation(velocities=[(0, 0), (1, 1)]), hidden_channels=8, decoder_layers=1
    ).to(DEVICE)
    video = torch.rand(1, 2, 1, 3, 4, device=DEVICE)

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        _fused.forecast(model, video, 2).square().mean().backward()
        return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}

    want = gradients()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen))
    got = gradients()
    assert got.keys() == {name for name in want if not name.startswith(frozen)}
    assert all(same(got[name], want[name]) for name in got)
