"""`flow_sigma` in Triton against plain torch, and a recurrence with batch-norm that ends in it.

`test_flow_sigma.py` runs this file in a process of its own: in Triton's interpreter on the CPU, and
on a CUDA device.
"""

import copy
import os

import pytest
import torch
from tolerances import same

from fernn import Classifier, FlowRNN, Translation
from fernn.models import _fused_clips
from fernn.nn import LearnedTransport
from fernn.ops import ACTIVATIONS, _backend
from fernn.ops.flow_sigma import flow_sigma

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
FLOW = Translation(velocities=[(0, 0), (1, -2), (-1, 1)])


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("drives", [1, 3])
def test_flow_sigma(activation: str, drives: int) -> None:
    torch.manual_seed(0)
    shift = FLOW.velocities.to(DEVICE)
    x = torch.randn(3, 2, 9, 5, 4, device=DEVICE).transpose(0, 1).requires_grad_()
    drive = torch.randn(2, drives, 9, 5, 4, device=DEVICE, requires_grad=True)
    seen = torch.randn(2, 3, 9, 5, 4, device=DEVICE)
    results = []
    for form in ("kernel", "plain"):
        if form == "kernel":
            out = flow_sigma(x, drive, shift, activation)
        else:
            out = ACTIVATIONS[activation](FLOW.transport(x, 1) + drive)
        results.append((out, *torch.autograd.grad(out, [x, drive], seen)))
    assert all(same(mine, theirs) for mine, theirs in zip(*results, strict=True))


CASES = {  # options, and whether batch-norm trains
    "lab": ({}, True),
    "co-moving": ({"frame": "comoving"}, False),
    "layers": ({"hidden_channels": [8, 8], "activation": torch.sigmoid}, False),
    "learned": (lambda: {"transport": LearnedTransport(FLOW, 3)}, True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_recurrence_with_norm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """States, gradients and running statistics are those of plain torch."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    if DEVICE == "cpu":
        monkeypatch.setattr(_backend, "obstacle", lambda *_, **__: None)
    torch.manual_seed(1)
    changed, training = CASES[name]
    changed = changed() if callable(changed) else changed
    options = {"hidden_channels": 8, "activation": "tanh"} | changed
    plain = FlowRNN(2, flow=FLOW, norm=True, backend="lean", **options).train(training).to(DEVICE)
    fused = copy.deepcopy(plain)
    fused.backend = "auto"
    video, seen = torch.randn(1, 3, 2, 3, 4).to(DEVICE), torch.randn(1, 3, 3, 8, 3, 4).to(DEVICE)
    results = []
    for model in (fused, plain):
        states, _ = model(video)
        gradients = torch.autograd.grad(states, list(model.parameters()), seen)
        results.append((states, *gradients, *(b.float() for b in model.buffers())))
    assert len(results[0]) == len(results[1])
    assert all(same(mine, theirs) for mine, theirs in zip(*results, strict=True) if theirs.any())


@pytest.mark.parametrize("transport", ["flow", "learned"])
def test_a_classifier_with_norm(transport: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(1)
    options = {"hidden_channels": 8, "norm": True, "transport": transport}
    plain = Classifier(flow=FLOW, backend="lean", **options).to(DEVICE)
    fused = copy.deepcopy(plain)
    fused.rnn.backend = "auto"
    clip = torch.randn(2, 3, 1, 3, 4).to(DEVICE)
    want = plain(clip)
    if DEVICE == "cpu":
        monkeypatch.setattr(_backend, "obstacle", lambda *_, **__: None)
    ran, advance = [], fused.rnn._normed_step
    monkeypatch.setattr(fused.rnn, "_normed_step", lambda *a: ran.append(0) or advance(*a))
    assert _fused_clips.fits(fused, clip)
    assert same(fused(clip), want)
    assert len(ran) == 3
