"""`torch.compile` takes a whole model as one graph, and `torch.export` a model into a file.

On a CPU with a backend that traces forward and backward but compiles nothing, so that it needs no
compiler; with Inductor on a GPU.
"""

import io

import pytest
import torch
from tolerances import TOLERANCE, error, same
from torch import nn
from torch.export import Dim

from fernn import (
    SE2,
    Classifier,
    ConvGRU,
    FlowEquivariant,
    FlowRNN,
    Forecaster,
    Rotation,
    Translation,
)
from fernn.groups import _steerable
from fernn.nn import CausalAttention, CausalConv

MOVING, TURNING = Translation(radius=1), Rotation(count=1, degrees=30)
QUARTERS = Rotation(count=1, degrees=90, group=SE2(4))
MODELS = {
    "translation": lambda: Forecaster(flow=MOVING, hidden_channels=8, decoder_layers=0),
    "mixing": lambda: Forecaster(flow=MOVING, hidden_channels=4, decoder_layers=0, mixing=1),
    "rotation": lambda: Forecaster(flow=TURNING, hidden_channels=4, decoder_layers=0),
    "orientations": lambda: Forecaster(flow=QUARTERS, hidden_channels=2, decoder_layers=0),
    "classifier": lambda: Classifier(flow=MOVING, hidden_channels=4, classes=3),
    "cell": lambda: FlowEquivariant(ConvGRU(1, 3), MOVING),
    "sequence": lambda: FlowEquivariant(CausalAttention(1, 4), MOVING),
    "rotated sequence": lambda: FlowEquivariant(CausalConv(1, 3), TURNING),
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),  # torch's own
]


@pytest.fixture(params=MODELS)
def model(request, monkeypatch) -> nn.Module:
    torch.compiler.reset()
    for kept in ("_CACHE", "_COPIES"):  # as where nothing ran before it was compiled
        monkeypatch.setattr(_steerable, kept, {})
    return MODELS[request.param]().eval()


def _inputs(model: nn.Module, batch: int = 2, device: str = "cpu") -> tuple[object, ...]:
    video = torch.rand(batch, 2, 1, 8, 8, device=device)
    return (video, 2) if isinstance(model, Forecaster) else (video,)


def _both(model: nn.Module, backend: str, device: str) -> tuple[list[torch.Tensor], ...]:
    """Output and all gradients, compiled and not."""
    inputs = _inputs(model, device=device)
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    results = []
    for form in (compiled, model):
        out = form(*inputs)
        results.append([out, *torch.autograd.grad(out.square().mean(), [*model.parameters()])])
    return tuple(results)


def test_a_model_is_one_graph_with_its_gradients(model):
    for mine, theirs in zip(*_both(model, "aot_eager", "cpu"), strict=True):
        assert same(mine, theirs)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")  # of Inductor: advice on precision and modes, old names
@pytest.mark.parametrize("name", ["translation", "rotation", "classifier", "cell"])
def test_a_model_is_one_graph_with_its_gradients_on_a_gpu(name, monkeypatch):
    torch.compiler.reset()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    for mine, theirs in zip(*_both(MODELS[name]().eval().cuda(), "inductor", "cuda"), strict=True):
        assert error(mine, theirs) < 10 * TOLERANCE[torch.float32]


def test_an_exported_model_is_a_file_for_batches_of_any_size(model):
    """The file runs without this library: it holds operators of torch alone."""
    inputs = _inputs(model)
    shapes = ({0: Dim.DYNAMIC}, *(None for _ in inputs[1:]))
    program = torch.export.export(model, inputs, dynamic_shapes=shapes)
    calls = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert not [call for call in calls if "fernn" in str(call)]
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for batch in (2, 5):
        given = _inputs(model, batch)
        assert same(loaded(*given), model(*given))


def test_a_recurrence_exports_its_states():
    class States(nn.Module):
        def __init__(self, rnn: FlowRNN) -> None:
            super().__init__()
            self.rnn = rnn

        def forward(self, video: torch.Tensor) -> torch.Tensor:
            return self.rnn(video)[0]

    model = States(FlowRNN(1, 3, flow=MOVING))
    program = torch.export.export(model, _inputs(model))
    given = _inputs(model)
    assert same(program.module()(*given), model(*given))
