"""FlowRNN: Theorem 4.1 in both frames, with any option."""

from functools import partial

import pytest
import torch
from recurrences import EXACT, exact_flows, frames, recurrence, theorem_error, video
from tolerances import BROKEN, TOLERANCE, flow_error, same
from torch import nn

from fernn import SE2, FlowRNN, Rotation, Translation


@frames
@exact_flows
def test_flow_rnn_is_flow_equivariant(flow, velocity, canvas, frame):
    rnn = recurrence(flow, frame=frame)
    assert theorem_error(rnn, flow, velocity, canvas) < TOLERANCE[torch.float64]


OPTIONS = {
    "three layers": {"widths": [3, 2, 4]},
    "tanh": {"activation": "tanh"},
    "sine": {"activation": torch.sin},
    "module": {"activation": nn.GELU()},
    "norm": {"norm": True},
    "norm, two layers": {"norm": True, "widths": [3, 2], "activation": "tanh"},
    "kernel 5": {"kernel_size": 5},
    "kernel 1": {"kernel_size": 1},
    "reference": {"backend": "reference"},
}


@frames
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_flow_rnn_is_flow_equivariant_with_any_option(options, frame):
    flow, velocity, canvas = EXACT["2-D"]
    rnn = recurrence(flow, frame=frame, **{"widths": 3} | options)
    assert theorem_error(rnn, flow, velocity, canvas) < TOLERANCE[torch.float64]


@frames
def test_flow_rnn_with_an_encoder_is_flow_equivariant(frame):
    flow, velocity, canvas = EXACT["2-D"]
    encoder = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 3, 1),
    )
    rnn = recurrence(flow, frame=frame, encoder=encoder, activation="tanh")
    assert theorem_error(rnn, flow, velocity, canvas) < TOLERANCE[torch.float64]


@frames
@pytest.mark.parametrize(
    "options", [{"widths": [2, 2]}, {"kernel_size": 5}, {"activation": "tanh"}]
)
def test_flow_rnn_with_orientations_is_flow_equivariant_with_options(options, frame):
    flow, velocity, canvas = EXACT["quarters"]
    rnn = recurrence(flow, frame=frame, **options)
    assert theorem_error(rnn, flow, velocity, canvas) < TOLERANCE[torch.float64]


@frames
def test_flow_rnn_with_orientations_and_a_norm_is_flow_equivariant(frame):
    flow, velocity, canvas = EXACT["quarters"]
    rnn = recurrence(flow, frame=frame, norm=True)
    assert theorem_error(rnn, flow, velocity, canvas) < TOLERANCE[torch.float64]


@frames
def test_flow_rnn_is_flow_equivariant_by_index_arithmetic(frame):
    """M9 written out with torch.roll: h[ψ(ν̂)·f](ν) at step i is h[f](ν − ν̂) rolled by i·ν̂."""
    flow, x = Translation(radius=1), video(5, 7)
    rnn, hat = recurrence(flow, frame=frame), (1, 0)
    moving = torch.stack([torch.roll(x[:, t], (t, 0), (-2, -1)) for t in range(6)], 1)
    before, moved = rnn(x)[0], rnn(moving)[0]
    table = [tuple(v) for v in flow.velocities.tolist()]
    compared = 0
    for index, (row, column) in enumerate(table):
        source = (row - hat[0], column - hat[1])
        if source in table:
            for t in range(6):
                want = torch.roll(before[:, t, table.index(source)], (t, 0), (-2, -1))
                assert same(moved[:, t, index], want)
                compared += 1
    assert compared == 6 * 6


@frames
def test_flow_rnn_in_single_precision_is_flow_equivariant_to_rounding(frame):
    flow, velocity, canvas = EXACT["2-D"]
    rnn, x = FlowRNN(2, 3, flow=flow, frame=frame), video(*canvas, dtype=torch.float32)
    before, moved = rnn(x)[0], rnn(flow.act_sequence(x, velocity))[0]
    assert flow_error(moved, before, flow, velocity) < TOLERANCE[torch.float32]


@frames
def test_flow_rnn_from_a_state_that_the_flow_fixes_is_flow_equivariant(frame):
    flow, velocity, canvas = EXACT["2-D"]
    rnn = recurrence(flow, frame=frame)
    level = torch.randn(2, 1, 3, 1, 1, dtype=torch.double)
    fixed = rnn.init_state(level.expand(2, len(flow), 3, *canvas))
    assert theorem_error(rnn, flow, velocity, canvas, state=fixed) < TOLERANCE[torch.float64]
    other = rnn.init_state(torch.randn(2, len(flow), 3, *canvas, dtype=torch.double))
    assert theorem_error(rnn, flow, velocity, canvas, state=other, control=True) > BROKEN


def test_flow_rnn_of_one_velocity_is_equivariant_to_what_stands_still():
    """The G-RNN commutes with g applied to every frame alike."""
    for flow, act in (
        (Translation(radius=0), partial(torch.roll, shifts=(2, -3), dims=(-2, -1))),
        (Rotation(count=0), partial(torch.rot90, dims=(-2, -1))),
    ):
        rnn, x = recurrence(flow, [3, 2]), video(6, 6)
        if isinstance(flow, Rotation):
            rnn = recurrence(Rotation(count=0, group=SE2(4)), [3, 2])
            got = rnn(act(x))[0]
            want = act(rnn(x)[0]).unflatten(3, (2, 4)).roll(1, 4).flatten(3, 4)
        else:
            got, want = rnn(act(x))[0], act(rnn(x)[0])
        assert same(got, want)


def test_flow_rnn_without_memory_is_flow_equivariant():
    """A frame-wise map: with W = 0 even one velocity suffices."""
    flow, x = Translation(radius=0), video(5, 7)
    rnn = recurrence(flow, [3, 2])
    for layer in rnn.layers:
        nn.init.zeros_(layer.recurrent.weight)
    moved = rnn(flow.act_sequence(x, (1, -2)))[0]
    assert same(moved, flow.act_sequence(rnn(x)[0], (1, -2)))
