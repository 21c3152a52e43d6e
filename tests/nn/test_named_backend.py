"""A backend that is named runs, or says why it cannot: it never gives way in silence."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from fernn import SE2, Classifier, FlowRNN, Forecaster, Rotation, Translation
from fernn.nn import LearnedTransport

FEW, MANY = Translation(radius=1), Translation(radius=2)
TURNING, QUARTERS = Rotation(count=1), Rotation(count=1, degrees=90, group=SE2(4))
CASES: dict[str, tuple[Callable[..., nn.Module], dict, str]] = {
    "plain": (FlowRNN, {"flow": FEW}, "CUDA device"),
    "mixing": (FlowRNN, {"flow": MANY, "mixing": 1}, "64 or 128 channels, got 8 to 8"),
    "mixing in float32": (
        FlowRNN,
        {"flow": MANY, "mixing": 1, "hidden_channels": 64},
        "float16 or bfloat16, got torch.float32",
    ),
    "mixing of all": (
        FlowRNN,
        {"flow": FEW, "mixing": 1},
        "fewer differences than V has velocities, got 9 and 9",
    ),
    "norm": (FlowRNN, {"flow": FEW, "norm": True}, "CUDA device"),
    "norm and mixing": (
        FlowRNN,
        {"flow": MANY, "norm": True, "mixing": 1},
        "batch-norm has kernels for images without `mixing`, got it with mixing",
    ),
    "rotation": (
        FlowRNN,
        {"flow": TURNING, "frame": "comoving"},
        r"kernels for a Translation, got Rotation\(",
    ),
    "zeros outside": (
        FlowRNN,
        {"flow": FEW, "frame": "comoving", "padding": "zeros"},
        "padding=\"circular\", got 'zeros'",
    ),
    "forecaster, mixing": (Forecaster, {"flow": MANY, "mixing": 1}, "64 or 128 channels"),
    "forecaster, co-moving": (Forecaster, {"flow": FEW, "frame": "comoving"}, "CUDA device"),
    "forecaster, orientations": (
        Forecaster,
        {"flow": QUARTERS, "frame": "lab"},
        r"kernels for a Translation, got Rotation\(",
    ),
    "classifier, norm": (Classifier, {"flow": FEW, "norm": True}, "CUDA device"),
    "classifier, learned": (Classifier, {"flow": FEW, "transport": "learned"}, "CUDA device"),
    "classifier, learned and norm": (
        Classifier,
        {"flow": FEW, "transport": "learned", "norm": True},
        "CUDA device",
    ),
    "another transport": (
        FlowRNN,
        {"flow": FEW, "transport": nn.Identity()},
        "a LearnedTransport without `mixing`, got Identity",
    ),
    "learned and mixing": (
        FlowRNN,
        {"flow": MANY, "transport": LearnedTransport(MANY), "mixing": 1},
        "a LearnedTransport without `mixing`, got LearnedTransport with mixing",
    ),
}


def _made(name: str, backend: str) -> nn.Module:
    kind, options, _ = CASES[name]
    options = {"in_channels": 1, "hidden_channels": 8} | options
    return kind(**options, backend=backend)


@pytest.mark.parametrize("frames", [1, 3])  # h_1 needs no convolution, and the rule holds for it
@pytest.mark.parametrize("name", CASES)
def test_triton_by_name_raises_with_the_obstacle(name: str, frames: int) -> None:
    reason = CASES[name][2]
    with pytest.raises(ValueError, match=r'`backend` must not be "triton" here: .*' + reason):
        _made(name, "triton")(torch.rand(1, frames, 1, 6, 6))


@pytest.mark.parametrize("name", CASES)
def test_auto_gives_way(name: str) -> None:
    _made(name, "auto")(torch.rand(1, 2, 1, 6, 6))


def test_batch_norm_of_a_line_has_no_kernel() -> None:
    rnn = FlowRNN(1, 8, flow=Translation(radius=1, dim=1), norm=True, backend="triton")
    with pytest.raises(
        ValueError, match="for images without `mixing`, got it on signals of 1 axes"
    ):
        rnn(torch.rand(1, 2, 1, 6))


def test_a_second_layer_that_mixes_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its drive differs from ν to ν; the first layer passes on a device for it."""
    monkeypatch.setattr("fernn.ops.flow_mix._backend.obstacle", lambda *_, **__: None)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    rnn = FlowRNN(1, [64, 64], flow=MANY, mixing=1, backend="triton").to(torch.bfloat16)
    with pytest.raises(ValueError, match="a drive that all ν share, got one of 25 slices"):
        rnn.step(torch.rand(1, 1, 3, 3, dtype=torch.bfloat16))
    rnn.layers = rnn.layers[:1]
    rnn.step(torch.rand(1, 1, 3, 3, dtype=torch.bfloat16))


def test_second_gradients_come_by_the_reference() -> None:
    model = Forecaster(flow=FEW, hidden_channels=2, decoder_layers=1, backend="reference").double()
    video, parameters = torch.rand(1, 2, 1, 4, 4).double(), dict(model.named_parameters())

    def loss(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        predicted = torch.func.functional_call(model, parameters, (video, 1))
        return predicted.square().sum()

    first = torch.autograd.grad(loss(parameters), [*parameters.values()], create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), [*parameters.values()])
    # The gradient of |g|² is twice what g gains along g; no frame is fed back, which would stop it.
    step = 1e-6
    with torch.no_grad():
        moved = {n: p + step * g for (n, p), g in zip(parameters.items(), first, strict=True)}
    later = torch.func.grad(loss)(moved)
    for name, got, before in zip(parameters, second, first, strict=True):
        want = 2 * (later[name] - before) / step
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3 * want.abs().max().item())
