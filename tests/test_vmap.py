"""`torch.vmap`: gradients of each sample, ensembles and Jacobians, as a loop makes them."""

import copy

import pytest
import torch
from tolerances import same
from torch import Tensor
from torch.func import functional_call, grad, jacfwd, jacrev, stack_module_state, vmap

from fernn import SE2, Classifier, FlowRNN, Forecaster, Rotation, Translation

MOVING = Translation(radius=1)
QUARTERS = Rotation(count=1, degrees=90, group=SE2(4))
MODELS = {
    "translation": lambda: Forecaster(flow=MOVING, hidden_channels=3, decoder_layers=1),
    "orientations": lambda: Forecaster(flow=QUARTERS, hidden_channels=2, decoder_layers=0),
    "mixing": lambda: Forecaster(flow=MOVING, hidden_channels=2, decoder_layers=0, mixing=1),
    "layers": lambda: FlowRNN(1, [3, 2], flow=MOVING, activation="tanh"),
    "co-moving": lambda: FlowRNN(1, 3, flow=MOVING, frame="comoving"),
    "line": lambda: FlowRNN(1, 3, flow=Translation(radius=1, dim=1)),
    "classifier": lambda: Classifier(flow=MOVING, hidden_channels=4, classes=3),
}


@pytest.fixture(params=MODELS)
def model(request):
    return MODELS[request.param]().double().eval()


def _videos(model: torch.nn.Module) -> Tensor:
    dim = 1 if isinstance(model, FlowRNN) and model.flow.group.dim == 1 else 2
    return torch.rand(3, 2, 1, *(6,) * dim, dtype=torch.float64)


def _output(model: torch.nn.Module, weights: dict[str, Tensor], videos: Tensor) -> Tensor:
    horizon = (2,) if isinstance(model, Forecaster) else ()
    out = functional_call(model, weights, (videos, *horizon))
    return out if isinstance(out, Tensor) else out[0]


def _weights(model: torch.nn.Module) -> dict[str, Tensor]:
    return {name: value.detach() for name, value in model.named_parameters()}


def test_gradients_of_each_sample_are_those_of_a_loop(model):
    weights, videos = _weights(model), _videos(model)

    def loss(given: dict[str, Tensor], video: Tensor) -> Tensor:
        return _output(model, given, video[None]).square().sum()

    got = vmap(grad(loss, argnums=(0, 1)), in_dims=(None, 0))(weights, videos)
    for index, video in enumerate(videos):
        model.zero_grad()
        video.requires_grad_()
        _output(model, dict(model.named_parameters()), video[None]).square().sum().backward()
        assert same(got[1][index], video.grad)
        for name, parameter in model.named_parameters():
            assert same(got[0][name][index], parameter.grad)


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop:UserWarning"
)  # of torch's, in loops
def test_an_ensemble_is_a_loop_over_its_models(model):
    models = [copy.deepcopy(model) for _ in range(3)]
    with torch.no_grad():
        for member in models:
            for parameter in member.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    stacked, _ = stack_module_state(models)
    videos = _videos(model)

    def loss(weights: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out = _output(model, weights, videos)
        return out.square().sum(), out

    gradients, outputs = vmap(grad(loss, has_aux=True))(stacked)
    for index, member in enumerate(models):
        out = _output(member, dict(member.named_parameters()), videos)
        assert same(outputs[index], out)
        out.square().sum().backward()
        for name, parameter in member.named_parameters():
            assert same(gradients[name][index], parameter.grad)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
def test_the_jacobian_is_the_same_in_both_modes(model):
    weights, video = _weights(model), _videos(model)[:1]

    def output(x: Tensor) -> Tensor:
        return _output(model, weights, x)

    assert same(jacrev(output)(video), jacfwd(output)(video))
