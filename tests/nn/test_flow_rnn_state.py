"""FlowRNN: its state, streamed, read ahead, begun at zero, and refused if not its own."""

import copy
from dataclasses import replace

import pytest
import torch
from recurrences import EXACT, T1, exact_flows, frames, recurrence, video
from tolerances import BROKEN, error, same
from torch import nn

from fernn import ConvGRU, FlowEquivariant, FlowRNN, Translation
from fernn.nn import State


@frames
@exact_flows
def test_flow_rnn_streams_what_it_computes_at_once(flow, velocity, canvas, frame):
    rnn, x = recurrence(flow, [2, 3], frame=frame), video(*canvas)
    states, last = rnn(x)
    state = None
    for t in range(6):
        state = rnn.step(x[:, t], state)
        assert isinstance(state, State)
        assert state.time.item() == t + 1
        assert same(state.lab(), states[:, t])
    for a, b in zip(state.tensors, last.tensors, strict=True):
        assert same(a, b)
    head, middle = rnn(x[:, :2])
    tail, end = rnn(x[:, 2:], middle)
    assert same(torch.cat([head, tail], 1), states)
    assert same(end.lab(), last.lab())
    assert end.time.item() == 6
    assert same(rnn.observe(x).lab(), last.lab())
    assert same(rnn.observe(x[:, 2:], middle).lab(), last.lab())
    assert same(rnn.observe(x, kernels=rnn.kernels()).lab(), last.lab())


@frames
@exact_flows
def test_flow_rnn_state_reads_ahead_along_the_flow(flow, velocity, canvas, frame):
    rnn = recurrence(flow, frame=frame)
    state = rnn.observe(video(*canvas))
    for ahead in (0, 1, 3):
        assert same(state.lab(ahead), flow.transport(state.lab(), ahead))
    assert error(state.lab(1), state.lab()) > BROKEN


@frames
def test_flow_rnn_begins_at_zero(frame):
    flow, _, canvas = EXACT["2-D"]
    for norm in (False, True):
        rnn = recurrence(flow, [3, 2], frame=frame, norm=norm)
        x = video(*canvas)
        zero = [torch.zeros(2, 9, k, *canvas, dtype=torch.double) for k in (3, 2)]
        assert same(rnn(x)[0], rnn(x, rnn.init_state(*zero))[0])


def test_flow_rnn_begins_at_zero_with_a_transport_that_does_not_keep_zero():
    rnn, x = recurrence(T1, transport=nn.BatchNorm3d(9)), video(5, 7)
    zero = torch.zeros(2, 9, 3, 5, 7, dtype=torch.double)
    assert same(rnn(x)[0], rnn(x, rnn.init_state(zero))[0])


def test_state_prints_what_it_is_of_and_no_numbers():
    _, last = FlowRNN(1, 4, flow=Translation(radius=1))(torch.zeros(2, 3, 1, 5, 5))
    about = "time=3, frame='lab', flow=Translation(radius=1), tensors: (2, 9, 4, 5, 5)"
    assert repr(last) == f"State({about})"
    assert repr(replace(last, time=last.time.to("meta"))).startswith("State(time=?, frame='lab'")


def test_flow_rnn_depends_on_the_past_alone():
    flow, _, canvas = EXACT["2-D"]
    rnn, x = recurrence(flow, [3, 2]), video(*canvas)
    later = x.clone()
    later[:, 3:] += 1.0
    assert torch.equal(rnn(x)[0][:, :3], rnn(later)[0][:, :3])
    assert not torch.equal(rnn(x)[0][:, 3:], rnn(later)[0][:, 3:])


def test_flow_rnn_refuses_a_state_that_is_not_its_own():
    lab, comoving = FlowRNN(1, 2, flow=T1), FlowRNN(1, 2, flow=T1, frame="comoving")
    other = FlowRNN(1, 2, flow=Translation(radius=2))
    x = torch.zeros(2, 1, 5, 5)
    with pytest.raises(ValueError, match=r"`state` must come from this recurrence.*got frame='com"):
        lab.step(x, comoving.step(x))
    with pytest.raises(ValueError, match=r"`state` must come from.*got .*Translation\(radius=2\)"):
        lab.step(x, other.step(x))
    with pytest.raises(ValueError, match="`state` must hold the batch of the input, 1, got 2"):
        lab.step(x[:1], lab.step(x))


@pytest.mark.parametrize(
    "change",
    [lambda x: x[..., :4], lambda x: x.double(), lambda x: x[:, :, :1], lambda x: x.to("meta")],
)
def test_flow_rnn_refuses_a_state_of_another_shape(change):
    rnn, x = FlowRNN(1, 2, flow=T1), torch.zeros(2, 1, 5, 5)
    state = rnn.step(x)
    changed = State((change(state.tensors[0]),), state.time, state.frame, state.flow, features=True)
    with pytest.raises((ValueError, TypeError), match="`state` must"):
        rnn.step(x, changed)


def test_flow_rnn_refuses_a_state_of_fewer_layers():
    x = torch.zeros(2, 1, 5, 5)
    with pytest.raises(ValueError, match="`state` must"):
        FlowRNN(1, [2, 2], flow=T1).step(x, FlowRNN(1, 2, flow=T1).step(x))


@pytest.mark.parametrize(
    ("h0", "kind", "message"),
    [
        ([torch.zeros(2, 9, 2, 5, 5)] * 2, ValueError, "one tensor a layer, 1 here, got 2"),
        ([], ValueError, "one tensor a layer, 1 here, got 0"),
        ([torch.zeros(2, 2, 5, 5)], ValueError, "5 axes \\[B, V, K, H, W\\], got 4"),
        ([torch.zeros(2, 8, 2, 5, 5)], ValueError, "lifted to 9 velocities of 2 channels, got"),
        ([torch.zeros(2, 9, 3, 5, 5)], ValueError, "lifted to 9 velocities of 2 channels, got"),
        ([torch.zeros(2, 9, 2, 5, 5).long()], TypeError, "floating-point tensor, got torch.int64"),
    ],
)
def test_flow_rnn_refuses_a_bad_initial_state(h0, kind, message):
    with pytest.raises(kind, match="`h0` must .*" + message):
        FlowRNN(1, 2, flow=T1).init_state(*h0)


@pytest.mark.parametrize("make", [FlowRNN, lambda *a, flow: FlowEquivariant(ConvGRU(*a), flow)])
def test_a_detached_state_goes_on_without_its_past(make):
    """Truncated backpropagation: the gradients are those of a past that is a constant."""
    model, x = make(1, 2, flow=T1), torch.randn(2, 3, 1, 5, 5)
    weights, state, last, gradients = [*model.parameters()], None, None, []
    for frame in x.unbind(1):
        last, state = state, model.step(frame, state and state.detach())
        # Raises where a graph that is gone is read again.
        loss = state.lab().square().sum()
        gradients.append(torch.autograd.grad(loss, weights, allow_unused=True))
    assert int(state.detach().time) == 3
    held = copy.deepcopy(last.detach())
    assert not any(h.requires_grad for h in held.tensors)
    alone = torch.autograd.grad(model.step(x[:, 2], held).lab().square().sum(), weights)
    assert all(map(same, gradients[-1], alone))
    whole = model.step(x[:, 2], model.step(x[:, 1], model.step(x[:, 0])))
    whole = torch.autograd.grad(whole.lab().square().sum(), weights)
    assert any(map(lambda a, b: error(a, b) > BROKEN, gradients[-1], whole))


def test_a_state_moves_to_another_place():
    state = FlowRNN(1, 2, flow=T1).observe(torch.randn(2, 3, 1, 5, 5))
    state = replace(state, tensors=(torch.arange(3), *state.tensors))  # a cell may count
    half = state.to(torch.bfloat16)
    assert [h.dtype for h in half.tensors] == [torch.int64, torch.bfloat16]
    assert (half.time.dtype, int(half.time), half.frame) == (torch.int64, 3, "lab")
    away = state.to("meta", dtype=torch.double)
    assert {h.device.type for h in (*away.tensors, away.time)} == {"meta"}
    like = state.to(torch.zeros(1, dtype=torch.double))
    assert torch.equal(like.tensors[1], state.tensors[1].double())
