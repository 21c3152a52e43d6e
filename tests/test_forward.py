"""Forward mode: the default backends carry a tangent through every model."""

import pytest
import torch
from tolerances import error

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
from fernn.nn import LearnedTransport

T1 = Translation(radius=1)
QUARTERS = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
MODELS = {
    "recurrence": lambda: FlowRNN(1, [3, 2], flow=T1, activation="tanh"),
    "co-moving": lambda: FlowRNN(1, 3, flow=T1, frame="comoving"),
    "mixing": lambda: FlowRNN(1, 3, flow=T1, mixing=1),
    "learned": lambda: FlowRNN(1, 3, flow=T1, transport=LearnedTransport(T1)),
    "turning": lambda: FlowRNN(1, 3, flow=QUARTERS),
    "forecaster": lambda: Forecaster(flow=T1, hidden_channels=8, decoder_layers=1),
    "turning forecaster": lambda: Forecaster(flow=Rotation(count=1), hidden_channels=4),
    "classifier": lambda: Classifier(flow=T1, hidden_channels=4, norm=True),
    "wrapper": lambda: FlowEquivariant(ConvGRU(1, 3), flow=T1),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch's own
@pytest.mark.parametrize("name", MODELS)
def test_a_directional_derivative_is_that_of_finite_differences(name):
    """In frames and weights at once; central differences of 1e-6 are good to about 1e-9 here."""
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    horizon = (1,) if isinstance(model, Forecaster) else ()  # gradients stop at fed-back frames
    # Off the first weights: a bias of zero puts what is zero on the kink of ReLU.
    weights = {k: p.detach() + 0.1 * torch.randn_like(p) for k, p in model.named_parameters()}
    point = {"video": torch.rand(2, 3, 1, 6, 6, dtype=torch.float64), **weights}
    way = {key: torch.randn_like(value) for key, value in point.items()}

    def value(at):
        video, given = at["video"], {key: at[key] for key in weights}
        out = torch.func.functional_call(model, given, (video, *horizon))
        return (out[0] if isinstance(out, tuple) else out).square().sum()

    _, got = torch.func.jvp(value, (point,), (way,))
    ahead, behind = (
        value({key: point[key] + step * way[key] for key in point}) for step in (1e-6, -1e-6)
    )
    assert error(got, (ahead - behind) / 2e-6) < 1e-7
