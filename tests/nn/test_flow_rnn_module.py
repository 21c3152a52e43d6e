"""FlowRNN as a module of torch: trained, compiled, copied, cast, saved and initialised late."""

import copy

import numpy as np
import pytest
import torch
from recurrences import EXACT, QUARTERS, T1, frames, recurrence, video
from tolerances import TOLERANCE, error, same
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from fernn import SE2, FlowRNN, Rotation, Translation


@frames
def test_flow_rnn_in_training_mode_normalises_and_learns(frame):
    flow, _, canvas = EXACT["2-D"]
    rnn = FlowRNN(2, 3, flow=flow, frame=frame, norm=True).double().train()
    rnn(video(*canvas))[0].square().sum().backward()
    assert rnn.layers[0].norm.running_mean.any()
    assert all(p.grad is not None and p.grad.any() for p in rnn.parameters())


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("flow", "options"),
    [
        (Translation(radius=1), {}),
        (Translation(radius=1), {"frame": "comoving", "activation": "tanh"}),
        (Translation(radius=1), {"mixing": 1}),
        (Rotation(count=1), {"frame": "comoving"}),
        (Rotation(velocities=QUARTERS, group=SE2(4)), {}),
    ],
    ids=str,
)
def test_flow_rnn_compiles_to_one_graph(flow, options):
    torch.compiler.reset()
    rnn, x = FlowRNN(2, 3, flow=flow, **options), video(6, 6, steps=3, dtype=torch.float32)
    compiled = torch.compile(rnn, fullgraph=True, backend="eager")
    assert same(compiled(x)[0], rnn(x)[0])


def test_flow_rnn_keeps_its_values_when_copied_or_moved_to_another_precision():
    flow, _, canvas = EXACT["2-D"]
    rnn = recurrence(flow, [3, 2], activation=nn.Tanh())
    x = video(*canvas)
    twin = copy.deepcopy(rnn)
    assert torch.equal(twin(x)[0], rnn(x)[0])
    assert all(a is not b for a, b in zip(rnn.parameters(), twin.parameters(), strict=True))
    half = twin.to(torch.bfloat16)
    assert half(x.bfloat16())[0].dtype == torch.bfloat16
    single = copy.deepcopy(rnn).to(torch.float32)
    assert error(single(x.float())[0], rnn(x)[0]) < TOLERANCE[torch.float32]


@frames
def test_flow_rnn_under_autocast_stays_near_single_precision(frame):
    flow, _, canvas = EXACT["2-D"]
    rnn, x = FlowRNN(2, 3, flow=flow, frame=frame), video(*canvas, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = rnn(x)
    assert states.dtype == torch.bfloat16
    assert error(states, rnn(x)[0]) < TOLERANCE[torch.bfloat16]
    states.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 and p.grad.any() for p in rnn.parameters())


@frames
def test_flow_rnn_keeps_weights_alone_so_that_they_fit_any_set_of_velocities(frame):
    small = recurrence(Translation(radius=1), [3, 2], frame=frame)
    large = recurrence(Translation(radius=2), [3, 2], frame=frame)
    names = [f"layers.{n}.{part}.weight" for n in (0, 1) for part in ("input", "recurrent")]
    assert list(small.state_dict()) == names
    large.load_state_dict(small.state_dict())
    x = video(5, 7)
    index = [large.flow.velocities.tolist().index(v) for v in small.flow.velocities.tolist()]
    assert same(large(x)[0][:, :, index], small(x)[0])


def test_flow_rnn_says_what_it_is():
    assert repr(FlowRNN(1, 2, flow=Translation(radius=1))).startswith("FlowRNN(\n  1, flow=Trans")


def test_flow_rnn_survives_deferred_initialisation():
    """Built without memory and filled later, as large models are: the flow must not be lost."""
    whole = recurrence(T1, mixing=1)
    with torch.device("meta"):
        deferred = FlowRNN(2, 3, flow=T1, mixing=1).double()
    deferred.to_empty(device="cpu").load_state_dict(whole.state_dict())
    plain = FlowRNN(2, 3, flow=T1).double()
    with torch.device("meta"):
        late = FlowRNN(2, 3, flow=T1).double()
    late.to_empty(device="cpu").load_state_dict(plain.state_dict())
    x = video(5, 7)
    assert same(deferred(x)[0], whole(x)[0])
    assert same(late(x)[0], plain(x)[0])


def test_flow_rnn_survives_a_first_call_on_fake_tensors():
    flow = Translation(radius=1)
    rnn, x = FlowRNN(1, 2, flow=flow, frame="comoving"), torch.rand(1, 3, 1, 5, 5)
    with FakeTensorMode(allow_non_fake_inputs=True):
        flow.transport(torch.zeros(1, 9, 1, 5, 5), 1)
    assert rnn(x)[0].isfinite().all()


@pytest.mark.parametrize("widths", [np.array([3, 2]), torch.tensor([3, 2]), np.int64(3)], ids=str)
def test_flow_rnn_takes_the_widths_of_an_array(widths):
    rnn = FlowRNN(1, widths, flow=T1)
    assert [layer.channels for layer in rnn.layers] == np.atleast_1d(np.asarray(widths)).tolist()
