"""LearnedTransport: one scalar kernel a velocity in place of the flow."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tolerances import same

from fernn import Translation
from fernn.nn import FlowRNN, LearnedTransport


@pytest.mark.parametrize("size", [3, 5])
def test_learned_transport_convolves_each_slice_with_its_own_kernel(size):
    flow = Translation(radius=1)
    learned = LearnedTransport(flow, size).double()
    h = torch.randn(2, 9, 3, 6, 5, dtype=torch.double)
    halo = size // 2
    want = torch.stack(
        [
            torch.cat(
                [
                    F.conv2d(
                        F.pad(h[:, v, c : c + 1], (halo,) * 4, mode="circular"),
                        learned.weight[v, None],
                    )
                    for c in range(3)
                ],
                1,
            )
            for v in range(9)
        ],
        1,
    )
    assert same(learned(h), want)


OPTIONS = {"alone": {}, "norm": {"norm": True}, "mixing": {"mixing": 1}}


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("name", OPTIONS)
def test_flow_rnn_with_a_learned_transport_has_it_after_w(name, backend):
    """h ← σ(κ_ν ⋆ [W ⋆ h](ν) + U ⋆ f), gradients included, whatever is computed first."""
    flow = Translation(radius=1)
    learned = LearnedTransport(flow)
    rnn = FlowRNN(2, 3, flow=flow, transport=learned, activation="tanh", **OPTIONS[name])
    rnn.double().backend = backend
    layer, video = rnn.layers[0], torch.randn(2, 4, 2, 5, 6, dtype=torch.double, requires_grad=True)
    got = rnn(video)[0]
    (inner, kernel), h = layer.kernels(), torch.zeros(2, 9, 3, 5, 6, dtype=torch.double)
    states = []
    for frame in video.split(1, 1):
        h = torch.tanh(learned(layer.recur(h, kernel)) + layer.drive(frame, inner))
        states.append(h)
    want = torch.stack(states, 1)
    assert same(got, want)
    seen, inputs = torch.randn_like(want), [video, *rnn.parameters()]
    mine, theirs = (torch.autograd.grad(states, inputs, seen) for states in (got, want))
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_subclass_is_called_as_any_transport_after_w():
    class Saturated(LearnedTransport):
        def forward(self, h):
            return torch.tanh(super().forward(h)) + 1

    flow = Translation(radius=1)
    rnn = FlowRNN(1, 2, flow=flow, transport=Saturated(flow)).double()
    video, layer = torch.randn(1, 3, 1, 4, 5, dtype=torch.double), rnn.layers[0]
    (inner, kernel), h = layer.kernels(), torch.zeros(1, 9, 2, 4, 5, dtype=torch.double)
    for frame in video.split(1, 1):
        h = torch.relu(rnn.transport(layer.recur(h, kernel)) + layer.drive(frame, inner))
    assert same(rnn(video)[0][:, -1], h)


def test_learned_transport_can_be_the_flow():
    flow = Translation(radius=2)
    learned = LearnedTransport(flow).double()
    with torch.no_grad():
        learned.weight.zero_()
        for index, (row, column) in enumerate(flow.velocities.tolist()):
            learned.weight[index, 0, 2 - row, 2 - column] = 1.0
    h = torch.randn(2, 25, 3, 6, 5, dtype=torch.double)
    assert same(learned(h), flow.transport(h))


def test_learned_transport_has_625_parameters_on_the_largest_set():
    learned = LearnedTransport(Translation(radius=2))
    assert sum(p.numel() for p in learned.parameters()) == 625


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LearnedTransport(Translation(radius=1), 4), "`kernel_size` must be odd, got 4"),
        (lambda: LearnedTransport(Translation(radius=1, dim=1)), "`flow` must act on images, got"),
    ],
)
def test_learned_transport_refuses_bad_options(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("shape", [(2, 8, 3, 6, 5), (9, 3, 6, 5)])
def test_learned_transport_refuses_a_state_that_is_not_lifted(shape):
    with pytest.raises(ValueError, match="`h` must be lifted"):
        LearnedTransport(Translation(radius=1))(torch.zeros(shape))


def test_learned_transport_begins_again_as_it_began():
    torch.manual_seed(3)
    first = LearnedTransport(Translation(radius=1))
    with torch.device("meta"):
        late = LearnedTransport(Translation(radius=1))
    late.to_empty(device="cpu")
    torch.manual_seed(3)
    late.reset_parameters()
    assert torch.equal(late.weight, first.weight)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda _: LearnedTransport(3), TypeError, "`flow` must be a Flow, got 3"),
        (lambda t: t(np.zeros((1, 9, 1, 4, 4))), TypeError, "`h` must be a torch.Tensor, got nd"),
        (lambda t: t(torch.zeros(1, 9, 1, 4, 4).int()), TypeError, "`h` must be a real floating"),
        (lambda t: t(torch.zeros(1, 9, 1, 4, 4).double()), TypeError, "`h` must have the model's"),
    ],
)
def test_learned_transport_refuses_what_it_cannot_convolve(call, kind, message):
    with pytest.raises(kind, match=message):
        call(LearnedTransport(Translation(radius=1)))


def test_flow_rnn_refuses_a_learned_transport_of_another_flow():
    expected = r"`transport` must be .*flow, Translation\(radius=1\), got .*Translation\(radius=2\)"
    transport = LearnedTransport(Translation(radius=2))
    with pytest.raises(ValueError, match=expected):
        FlowRNN(1, 2, flow=Translation(radius=1), transport=transport)
