"""FlowRNN: options and input that it refuses, and what it says of them."""

import numpy as np
import pytest
import torch
from recurrences import QUARTERS, R1, T1, frames
from torch import nn

from fernn import SE2, FlowRNN, RigidMotion, Rotation, Translation


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frame": "rest"}, "`frame` must be one of 'lab', 'comoving', got 'rest'"),
        ({"backend": "cuda"}, "`backend` must be one of 'auto', .*got 'cuda'"),
        ({"padding": "same"}, "`padding` must be one of 'circular', 'zeros', got 'same'"),
        ({"activation": "gelu"}, "`activation` must be one of 'relu', .*got 'gelu'"),
        ({"kernel_size": 4}, "`kernel_size` must be odd, got 4.*Use 5"),
        ({"kernel_size": 0}, "`kernel_size` must be a positive integer, got 0"),
        ({"in_channels": 0}, "`in_channels` must be a positive integer, got 0"),
        ({"hidden_channels": 0}, "`hidden_channels` must be a positive integer, got 0"),
        ({"hidden_channels": []}, "`hidden_channels` must name at least one layer"),
        ({"mixing": "half"}, "`mixing` must be \"full\", a radius or None, got 'half'"),
        ({"mixing": -1}, "`mixing` must be a non-negative integer, got -1"),
        ({"mixing": 1, "kernel_size": 2}, "`kernel_size` must be odd, got 2"),
        (
            {"mixing": 1, "flow": Translation(radius=1, dim=3)},
            "`flow` must be a Translation in one or two dimensions to mix",
        ),
        (
            {"mixing": 1, "flow": Rotation(velocities=QUARTERS, group=SE2(4))},
            "`flow` must be a Translation in one or two dimensions to mix",
        ),
        ({"mixing": 1, "frame": "comoving"}, '`frame` must be "lab" with `mixing`, got "comoving"'),
        (
            {"transport": nn.Identity(), "frame": "comoving"},
            '`frame` must be "lab" with `transport`, got "comoving"',
        ),
        (
            {"padding": "zeros"},
            "`padding` must be 'circular' in the lab frame, got 'zeros'.*"
            'padding="circular", or frame="comoving"',
        ),
        (
            {"flow": R1},
            "multiples of 360° in the lab frame, got a velocity of -10°.*"
            'frame="comoving".*or a flow with .* group=SE2\\(N\\), N a multiple of 36',
        ),
        (
            {"flow": Rotation(count=1, group=SE2(8))},
            "multiples of 45° in the lab frame.*multiple of 36",
        ),
        (
            {"flow": Rotation(velocities=[0, 1 / 7])},
            'frame="comoving".*360° over their common divisor',
        ),
        (
            {"flow": RigidMotion([(0, 0, 0), (10, 0, 0)])},
            "multiples of 360° in the lab frame, got a velocity of 10°",
        ),
        (
            {"flow": Rotation(count=1, group=SE2(8)), "frame": "comoving"},
            "multiples of 45° to permute the orientations.*multiple of 36",
        ),
    ],
)
def test_flow_rnn_refuses_bad_options(options, message):
    arguments = {"in_channels": 1, "hidden_channels": 2, "flow": T1} | options
    with pytest.raises(ValueError, match=message):
        FlowRNN(**arguments)


@pytest.mark.parametrize("unknown", ["bias", "dropout", "velocities"])
def test_flow_rnn_refuses_unknown_options(unknown):
    with pytest.raises(TypeError, match=unknown):
        FlowRNN(1, 2, flow=T1, **{unknown: 1})


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (torch.zeros(2, 3, 2, 5), ValueError, "5 axes \\[B, T, C, H, W\\], got 4 in shape"),
        (torch.zeros(2, 3, 1, 2, 5, 5), ValueError, "\\[B, T, C, H, W\\], got .*one axis too many"),
        (
            torch.zeros(2, 3, 4, 5, 5),
            ValueError,
            "2 channels in \\[B, T, C, H, W\\], got 4 in shape",
        ),
        (
            torch.zeros(0, 3, 2, 5, 5),
            ValueError,
            "not be empty, got shape \\(0, 3, 2, 5, 5\\)",
        ),
        (
            torch.zeros(2, 0, 2, 5, 5),
            ValueError,
            "not be empty, got shape \\(2, 0, 2, 5, 5\\)",
        ),
        (torch.zeros(2, 3, 2, 5, 0), ValueError, "not be empty"),
        (torch.zeros(2, 3, 2, 5, 5).long(), TypeError, "floating-point.*got torch.int64.*float()"),
        (torch.zeros(2, 3, 2, 5, 5).bool(), TypeError, "floating-point.*got torch.bool"),
        (torch.zeros(2, 3, 2, 5, 5) + 0j, TypeError, "floating-point tensor, got torch.complex64"),
        (torch.zeros(2, 3, 2, 5, 5).double(), TypeError, "dtype torch.float32, got torch.float64"),
        (torch.zeros(2, 3, 2, 5, 5, device="meta"), ValueError, "device cpu, got meta.*\\.to"),
        ([[0.0]], TypeError, "be a torch.Tensor, got list"),
    ],
)
def test_flow_rnn_refuses_bad_input(x, kind, message):
    rnn = FlowRNN(2, 3, flow=T1)
    for function in (rnn, rnn.observe):
        with pytest.raises(kind, match="`video` must .*" + message):
            function(x)
    if isinstance(x, torch.Tensor) and x.shape[1:2] != (0,):
        with pytest.raises(kind, match="`frame` must "):
            rnn.step(x[:, 0])


@frames
def test_flow_rnn_refuses_a_canvas_its_flow_cannot_move(frame):
    rnn = FlowRNN(1, 2, flow=Translation(closed=(5, 5)), frame=frame)
    with pytest.raises(ValueError, match=r"canvas \(5, 5\) that the flow closes on, got \(5, 6\)"):
        rnn(torch.zeros(1, 2, 1, 5, 6))
    rnn = FlowRNN(1, 2, flow=Rotation(velocities=QUARTERS, group=SE2(4)), frame=frame)
    with pytest.raises(ValueError, match=r"must be square .*got 5×6.*Pad the image"):
        rnn(torch.zeros(1, 2, 1, 5, 6))


def test_flow_rnn_refuses_an_encoder_that_changes_the_canvas_or_the_width():
    for encoder in (nn.Conv2d(1, 2, 3), nn.Conv2d(1, 5, 1)):
        rnn = FlowRNN(1, 2, flow=T1, encoder=encoder)
        with pytest.raises(ValueError, match=r"`encoder` must map \[N, C, \*X\] to \[N, 2, \*X\]"):
            rnn(torch.zeros(1, 2, 1, 5, 6))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"flow": None}, "`flow` must"),
        ({"hidden_channels": 2.0}, "`hidden_channels` must"),
        ({"activation": None}, "`activation` must"),
        ({"activation": [1]}, r"`activation` must be .*got \[1\]"),
        ({"hidden_channels": np.ones((1, 2))}, r"`hidden_channels` must be .*got \[1.0, 1.0\]"),
        ({"hidden_channels": torch.tensor(0)}, "`hidden_channels` must be .*got 0"),
    ],
)
def test_flow_rnn_refuses_options_of_another_type(options, message):
    arguments = {"in_channels": 1, "hidden_channels": 2, "flow": T1} | options
    with pytest.raises((ValueError, TypeError), match=message):
        FlowRNN(**arguments)


def test_flow_rnn_explains_common_mistakes():
    rnn, x = FlowRNN(1, 2, flow=T1), torch.zeros(2, 3, 1, 5, 5)
    with pytest.raises(TypeError, match=r"`state` must be a State, got tuple.*pass `last`"):
        rnn.step(x[:, 0], rnn(x))
    with pytest.raises(ValueError, match=r"`activation` must be .*torch.nn.GELU\(\)"):
        FlowRNN(1, 2, flow=T1, activation=nn.GELU)
