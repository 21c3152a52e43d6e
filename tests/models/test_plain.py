"""Kernels read layers that are as the models make them, and leave all others to the models."""

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from fernn import Classifier, FlowRNN, Forecaster, Rotation, Stream, Translation
from fernn.models import _fused, _fused_clips, _fused_rotation, _plain, _predict, _streamed
from fernn.nn import FlowPool

MOVING, TURNING = Translation(radius=1), Rotation(count=1, degrees=30)


def _circular(size=3, *, bias=True, **options):
    made = {"padding": size // 2, "padding_mode": "circular"} | options
    return nn.Conv2d(16, 16, size, bias=bias, **made)


class _Other(nn.Conv2d):
    pass


def _replace(index, layer):
    def change(stack):
        stack[index] = layer

    return change


def _resized(*widths, size=3):
    """Another decoder, which may have other widths and another size of kernel than the model's."""
    made = {"padding": size // 2, "padding_mode": "circular"}
    first, last = (nn.Conv2d(*pair, size, **made) for pair in pairwise(widths))

    def change(model):
        model.decoder = nn.Sequential(first, nn.ReLU(), last)

    return change


CHANGES = {
    "forward hook": lambda stack: stack[0].register_forward_hook(lambda *_: None),
    "forward pre-hook": lambda stack: stack[1].register_forward_pre_hook(lambda *_: None),
    "backward hook": lambda stack: stack[0].register_full_backward_hook(lambda *_: None),
    "backward pre-hook": lambda stack: stack[0].register_full_backward_pre_hook(lambda *_: None),
    "hook on the stack": lambda stack: stack.register_forward_hook(lambda *_: None),
    "pruned": lambda stack: prune.random_unstructured(stack[0], "weight", amount=0.5),
    "parametrized": lambda stack: nn.utils.parametrizations.weight_norm(stack[0]),
    "another class": _replace(0, _Other(16, 16, 3, padding=1, padding_mode="circular")),
    "another activation": _replace(1, nn.Tanh()),
    "other padding": _replace(0, _circular(padding=0)),
    "other stride": _replace(0, _circular(stride=2)),
    "one layer more": lambda stack: stack.append(nn.ReLU()),
}


@pytest.fixture(autouse=True)
def _kernels_can_run(monkeypatch):
    """Here it is the layers alone that decide."""
    for module in (_fused, _fused_clips, _fused_rotation, _streamed):
        monkeypatch.setattr(module, "choose", lambda *_: "triton")
    monkeypatch.setattr(_predict, "obstacle", lambda *_, **__: None)


def _fits(model):
    """What each path of a forecaster says, on a torus."""
    video = torch.rand(1, 2, 1, 6, 6)
    state = model.rnn.observe(video)
    forms = (_fused.fits(model, video), _predict.fits(model, state))
    return (*forms, _streamed.fits(model, video[:, 0]))


def _forecaster(flow):
    return Forecaster(flow=flow, hidden_channels=16, decoder_layers=1)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_decoder_is_called(name):
    model = _forecaster(MOVING)
    assert _fits(model) == (True,) * 3
    CHANGES[name](model.decoder)
    assert _fits(model) == (False,) * 3
    video, model = torch.rand(1, 2, 1, 6, 6), _forecaster(TURNING)
    assert _fused_rotation.fits(model, video)
    CHANGES[name](model.decoder)
    assert not _fused_rotation.fits(model, video)


@pytest.mark.parametrize(
    "change",
    [_resized(16, 24, 1), _resized(16, 8, 1), _resized(16, 16, 2), _resized(16, 16, 1, size=5)],
)
def test_a_decoder_of_another_shape_is_called(change):
    """Kernels share buffers between layers, so another width or halo would be read amiss."""
    model = _forecaster(MOVING)
    _resized(16, 16, 1)(model)
    assert _fits(model) == (True,) * 3
    change(model)
    assert _fits(model) == (False,) * 3


def test_a_decoder_of_two_sizes_is_called():
    model = _forecaster(MOVING)
    model.decoder[0] = _circular(5)
    assert _fits(model) == (False,) * 3


def test_a_changed_pool_is_called():
    model = _forecaster(MOVING)
    model.pool.register_forward_hook(lambda *_: None)
    assert _fits(model) == (False,) * 3
    model.pool = FlowPool("mean")
    assert _fits(model) == (False,) * 3


def _synchronised(model):
    nn.SyncBatchNorm.convert_sync_batchnorm(model)


CLASSIFIERS = {
    name: lambda model, change=change: change(model.rnn.layers[0].input)
    for name, change in CHANGES.items()
} | {
    "synchronised batch-norm": _synchronised,
    "bias": lambda m: _replace(6, _circular())(m.rnn.layers[0].input),
    "hook on a norm": lambda m: m.rnn.layers[0].input[4].register_forward_hook(lambda *_: None),
    "one function": lambda m: setattr(m.rnn.layers[0], "input", nn.Identity()),
    "hook on the pool": lambda m: m.pool.register_forward_hook(lambda *_: None),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_changed_encoder_is_called(name):
    model, clip = (
        Classifier(flow=MOVING, hidden_channels=16, backend="lean"),
        torch.rand(1, 2, 1, 6, 6),
    )
    assert _fused_clips.fits(model, clip)
    CLASSIFIERS[name](model)
    assert not _fused_clips.fits(model, clip)


def test_an_encoder_in_the_place_of_u_is_called():
    encoder = nn.Conv2d(1, 16, 3, padding=1, padding_mode="circular")
    frame = torch.rand(1, 1, 6, 6)
    assert _streamed.fits(FlowRNN(1, 16, flow=MOVING), frame)
    rnn = FlowRNN(1, 16, flow=MOVING, encoder=encoder, backend="lean")
    assert not _streamed.fits(rnn, frame)
    assert torch.allclose(Stream(rnn)(frame), rnn(frame[:, None])[0][:, 0])


def test_the_check_is_traced():
    """It runs inside `forward`, so a compiled model looks at its layers without a graph break."""
    model, clips = _forecaster(MOVING), Classifier(flow=MOVING, hidden_channels=8)

    def looked(x):
        plain = _plain.decodes_plainly(model) and _plain.encodes_plainly(clips)
        return x + 1 if plain else x

    assert torch.compile(looked, fullgraph=True, backend="eager")(torch.zeros(1)) == 1
