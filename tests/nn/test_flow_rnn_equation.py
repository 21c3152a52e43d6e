"""FlowRNN: the equation word for word in both frames, all gradients, and W ⋆ h_1 once."""

import pytest
import torch
import torch.nn.functional as F
from recurrences import EXACT, R1, T1, circular, recurrence, video
from tolerances import same
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fernn import SE2, FlowRNN, RigidMotion, Rotation, Translation


@pytest.mark.parametrize("widths", [3, [3, 2]])
@pytest.mark.parametrize("started", [False, True], ids=["from zero", "from h_0"])
def test_flow_rnn_lab_frame_is_the_equation(widths, started):
    """h_{t+1}(ν) = σ(ψ_1(ν)·[W ⋆ h_t](ν) + U ⋆ f_t), one velocity at a time with torch.roll."""
    flow = Translation(velocities=[(0, 0), (1, 0), (-2, 1)])
    rnn, x = recurrence(flow, widths, activation="tanh"), video(5, 6)
    sizes = [widths] if isinstance(widths, int) else widths
    start = [torch.randn(2, 3, k, 5, 6, dtype=torch.double) * started for k in sizes]
    states, last = rnn(x, rnn.init_state(*start) if started else None)
    for index, velocity in enumerate(flow.velocities.tolist()):
        h = [s[:, index] for s in start]
        for t in range(6):
            below = x[:, t]
            for level, layer in enumerate(rnn.layers):
                moved = torch.roll(circular(h[level], layer.recurrent.weight), velocity, (-2, -1))
                h[level] = torch.tanh(moved + circular(below, layer.input.weight))
                below = h[level]
            assert same(states[:, t, index], h[-1])
        for level, tensor in enumerate(last.tensors):
            assert same(tensor[:, index], h[level])


@pytest.mark.parametrize("training", [False, True])
def test_flow_rnn_with_norm_is_the_equation(training):
    """σ(ψ_1(ν)·relu(N(W ⋆ h)) + U ⋆ f), N with one mean and variance a channel for B, V, X."""
    flow = Translation(velocities=[(0, 0), (1, 0), (-2, 1)])
    rnn, x = recurrence(flow, norm=True, activation="tanh").train(training), video(5, 6)
    (layer,) = rnn.layers
    norm = layer.norm
    centre, spread = (
        value.clone()[:, None, None] for value in (norm.running_mean, norm.running_var)
    )
    scale, shift = norm.weight[:, None, None], norm.bias[:, None, None]
    states, _ = rnn(x)
    h = torch.zeros(2, 3, 3, 5, 6, dtype=torch.double)
    for t in range(6):
        out = torch.stack([circular(slice_, layer.recurrent.weight) for slice_ in h.unbind(1)], 1)
        if training:
            centre = out.mean((0, 1, 3, 4))[:, None, None]
            spread = out.var((0, 1, 3, 4), correction=0)[:, None, None]
        out = torch.relu((out - centre) / (spread + norm.eps).sqrt() * scale + shift)
        moved = [torch.roll(out[:, i], v, (-2, -1)) for i, v in enumerate(flow.velocities.tolist())]
        h = torch.tanh(torch.stack(moved, 1) + circular(x[:, t], layer.input.weight)[:, None])
        assert same(states[:, t], h)


@pytest.mark.parametrize("padding", ["zeros", "circular"])
@pytest.mark.parametrize(
    "flow", [Rotation(count=1, degrees=20), RigidMotion([(0, 0, 0), (0, 0.5, 1.25)])], ids=str
)
def test_flow_rnn_comoving_frame_is_the_equation(flow, padding):
    """k_{t+1}(ν) = σ(W ⋆ k_t(ν) + U ⋆ ψ_{−t}(ν)·f_t) and h_{t+1}(ν) = ψ_t(ν)·k_{t+1}(ν)."""
    rnn, x = recurrence(flow, frame="comoving", padding=padding), video(6, 7)
    (layer,) = rnn.layers
    start = torch.randn(2, len(flow), 3, 6, 7, dtype=torch.double)
    states, last = rnn(x, rnn.init_state(start))

    def conv(signal, kernel):
        return (
            circular(signal, kernel)
            if padding == "circular"
            else F.conv2d(signal, kernel, padding=1)
        )

    for index, velocity in enumerate(flow.velocities):
        k = flow.act(start[:, index], velocity)
        for t in range(6):
            drive = conv(flow.act(x[:, t], velocity, -t), layer.input.weight)
            k = torch.relu(conv(k, layer.recurrent.weight) + drive)
            assert same(states[:, t, index], flow.act(k, velocity, t))
        assert same(last.tensors[0][:, index], k)


AGREEING = [
    (*case, options)
    for case in EXACT.values()
    for options in ({}, {"widths": [3, 2]}, {"norm": True}, {"activation": torch.sin})
]


@pytest.mark.parametrize(("flow", "velocity", "canvas", "options"), AGREEING)
def test_flow_rnn_frames_agree_with_all_gradients(flow, velocity, canvas, options):
    options = {"widths": 3} | options
    lab = recurrence(flow, frame="lab", **options)
    comoving = recurrence(flow, frame="comoving", **options)
    assert list(lab.state_dict()) == list(comoving.state_dict())
    comoving.load_state_dict(lab.state_dict(), strict=True)
    x = video(*canvas, steps=5).requires_grad_()
    start = [
        torch.randn(2, len(flow), layer.channels, *canvas, dtype=torch.double, requires_grad=True)
        for layer in lab.layers
    ]
    made = []
    for rnn in (lab, comoving):
        states, last = rnn(x, rnn.init_state(*start))
        assert same(last.lab(), states[:, -1])
        weight = torch.linspace(-1, 1, states.numel(), dtype=torch.double).reshape(states.shape)
        loss = (weight * states**2).sum()
        made.append([states, *torch.autograd.grad(loss, [x, *start, *rnn.parameters()])])
    for a, b in zip(*made, strict=True):
        assert same(a, b)


def _convolutions(run):
    """The arithmetic of a run's convolutions."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    ("flow", "frame"),
    [
        (T1, "lab"),
        (T1, "comoving"),
        (R1, "comoving"),
        (Rotation(count=1, degrees=90.0, group=SE2(4)), "lab"),
    ],
    ids=str,
)
def test_flow_rnn_convolves_what_all_velocities_share_once(flow, frame):
    """W ⋆ h_1 does not depend on ν: a step by itself does not know that h_1 is the same for all."""
    rnn, x = recurrence(flow, frame=frame), video(8, 8, steps=4)
    state, states, kernels = None, [], rnn.kernels()
    for f in x.unbind(1):
        state = rnn.step(f, state, kernels)
        states.append(state.lab())
    every, seen = (
        torch.stack(states, 1),
        torch.randn(2, 4, len(flow), *states[0].shape[2:]).double(),
    )
    for one, other in zip(
        (rnn(x)[0], *torch.autograd.grad((rnn(x)[0] * seen).sum(), [*rnn.parameters()])),
        (every, *torch.autograd.grad((every * seen).sum(), [*rnn.parameters()])),
        strict=True,
    ):
        assert same(one, other)
    drive, two, three, four = (
        _convolutions(lambda n=n: rnn.observe(x[:, :n], kernels=kernels)) for n in (1, 2, 3, 4)
    )
    # U of a later frame: of every ν's own where frames turn apart, of none at time 0.
    later = drive * len(flow) if isinstance(flow, Rotation) and frame == "comoving" else drive
    assert three - two == four - three
    assert three - two - later == len(flow) * (two - drive - later) > 0


class _Drawn(nn.Module):
    """A convolution whose output is partly thrown away, by chance."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3, padding=1, padding_mode="circular")

    def forward(self, x):
        return nn.functional.dropout(self.conv(x))


@pytest.mark.parametrize(
    ("options", "frame"),
    [
        ({"encoder": _Drawn}, "comoving"),  # in the lab frame it has all frames at once
        ({"activation": nn.RReLU}, "lab"),
        ({"activation": nn.RReLU}, "comoving"),
    ],
)
def test_a_sequence_draws_what_its_steps_draw(options, frame):
    rnn = FlowRNN(1, 3, flow=T1, frame=frame, **{key: make() for key, make in options.items()})
    x = torch.rand(2, 4, 1, 8, 8)
    torch.manual_seed(1)
    states, _ = rnn(x)
    torch.manual_seed(1)
    state, kernels = None, rnn.kernels()
    for at, f in enumerate(x.unbind(1)):
        state = rnn.step(f, state, kernels)
        torch.testing.assert_close(states[:, at], state.lab())
