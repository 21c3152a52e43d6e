"""Rotation: counter-clockwise as displayed, exact at quarter turns, bilinear between them."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tolerances import TOLERANCE, error, same, smooth

import fernn
from fernn import SE2, RigidMotion, Rotation, Translation

QUARTERS = Rotation(velocities=[0, 90, 180, 270])


def sampled(x, degrees):
    """Bilinear rotation about the centre by torch's own sampler, x right and y up."""
    height, width = x.shape[-2:]
    down, right = torch.meshgrid(
        torch.arange(height, dtype=x.dtype), torch.arange(width, dtype=x.dtype), indexing="ij"
    )
    right, up = right - (width - 1) / 2, (height - 1) / 2 - down
    turn = math.radians(degrees)
    source_right = right * math.cos(turn) + up * math.sin(turn)
    source_up = up * math.cos(turn) - right * math.sin(turn)
    grid = torch.stack([2 * source_right / (width - 1), -2 * source_up / (height - 1)], -1)
    return F.grid_sample(
        x[None, None], grid[None], mode="bilinear", padding_mode="zeros", align_corners=True
    )[0, 0]


def test_rotation_carries_the_right_edge_to_the_top():
    image = torch.zeros(5, 5)
    image[2, 4] = 1.0
    assert QUARTERS.act(image, 90).nonzero().tolist() == [[0, 2]]
    assert QUARTERS.act(image, 180).nonzero().tolist() == [[2, 0]]
    assert QUARTERS.act(image, -90).nonzero().tolist() == [[4, 2]]
    assert QUARTERS.act(image, 90, 3).nonzero().tolist() == [[4, 2]]


@pytest.mark.parametrize("flow", [Rotation(count=1), RigidMotion([(0, 0, 0), (10, 0, 0)])])
def test_rotation_by_a_little_lifts_the_right_edge(flow):
    image = torch.zeros(21, 21)
    image[10, 18] = 1.0
    velocity = 10 if isinstance(flow, Rotation) else (10, 0, 0)
    moved = flow.act(image, velocity)
    row, column = (
        (moved * axis).sum() / moved.sum()
        for axis in torch.meshgrid(torch.arange(21.0), torch.arange(21.0), indexing="ij")
    )
    assert row.item() == pytest.approx(10 - 8 * math.sin(math.radians(10)), abs=0.2)
    assert column.item() == pytest.approx(10 + 8 * math.cos(math.radians(10)), abs=0.2)


@given(
    st.integers(1, 6), st.integers(-9, 9), st.integers(-9, 9), st.integers(-5, 5), st.integers(0, 9)
)
def test_rotation_by_quarter_turns_is_an_exact_flow(size, quarter, s, t, seed):
    x = torch.randn(2, size, size, generator=torch.Generator().manual_seed(seed))
    flow, velocity = Rotation(count=1, degrees=90), 90 * quarter
    assert torch.equal(flow.act(x, velocity, 0), x)
    assert torch.equal(flow.act(x, velocity, t), torch.rot90(x, quarter * t, (-2, -1)))
    assert torch.equal(
        flow.act(flow.act(x, velocity, t), velocity, s), flow.act(x, velocity, s + t)
    )
    assert torch.equal(flow.act(flow.act(x, velocity, t), velocity, -t), x)


def test_rotation_takes_a_velocity_and_a_time_for_each_sample():
    x = torch.randn(4, 3, 2, 5, 5)
    velocity = torch.tensor([[90], [0], [180], [-90]])
    time = torch.tensor([1, 7, 3, 2])
    grid = torch.arange(12).reshape(4, 3) - 4

    def turned(image, quarters):
        return torch.rot90(image, int(quarters), (-2, -1))

    want = torch.stack([turned(x[b], velocity[b] // 90) for b in range(4)])
    assert torch.equal(QUARTERS.act(x, velocity), want)
    want = torch.stack([turned(x[b], velocity[b] // 90 * time[b]) for b in range(4)])
    assert torch.equal(QUARTERS.act(x, velocity, time), want)
    want = torch.stack([turned(x[b], time[b]) for b in range(4)])
    assert torch.equal(QUARTERS.act(x, 90, time), want)
    want = torch.stack(
        [
            torch.stack([turned(x[b, t], velocity[b] // 90 * grid[b, t]) for t in range(3)])
            for b in range(4)
        ]
    )
    assert torch.equal(QUARTERS.act(x, velocity[:, None], grid), want)
    want = torch.stack(
        [
            torch.stack([turned(x[b, t], velocity[b] // 90 * (t + 2)) for t in range(3)])
            for b in range(4)
        ]
    )
    assert torch.equal(QUARTERS.act_sequence(x, velocity, start=2), want)


@pytest.mark.parametrize("degrees", [10, -37.5, 45, 100, 355, 725])
@pytest.mark.parametrize("canvas", [(7, 7), (6, 9)])
def test_rotation_between_quarter_turns_samples_bilinearly_with_zeros_outside(degrees, canvas):
    x = torch.randn(canvas, dtype=torch.double)
    assert same(Rotation(count=1).act(x, degrees), sampled(x, degrees))
    assert same(Rotation(count=1).act(x, degrees / 5, 5), sampled(x, degrees))


def test_rotation_of_each_sample_equals_a_loop():
    flow, x = Rotation(count=4), torch.randn(9, 2, 8, 8, dtype=torch.double)
    want = torch.stack([flow.act(x[i], v, 3) for i, v in enumerate(flow.velocities)])
    assert torch.equal(flow.act(x, flow.velocities, 3), want)


@pytest.mark.parametrize(
    ("width", "there_and_back", "nine_steps"), [(2, 0.12, 0.30), (3, 0.06, 0.20), (4, 0.04, 0.13)]
)
def test_rotation_between_quarter_turns_costs_what_bilinear_sampling_costs(
    width, there_and_back, nine_steps
):
    """Gaussians of 2, 3 and 4 pixels on 33×33, largest error over largest value.

    Measured: a turn there and back 0.107, 0.055, 0.034 at the worst of 17 angles; nine turns by
    10° against one by 90°, 0.26, 0.17, 0.11. The laws hold as far as interpolation lets them.
    """
    flow, x = Rotation(count=1), smooth(33, width)
    for degrees in range(5, 90, 5):
        assert 0 < error(flow.act(flow.act(x, degrees), degrees, -1), x) < there_and_back
    stepwise = x
    for _ in range(9):
        stepwise = flow.act(stepwise, 10)
    assert there_and_back < error(stepwise, flow.act(x, 90)) < nine_steps
    assert torch.equal(flow.act(x, 10, 9), flow.act(x, 90))


@pytest.mark.parametrize("features", [True, False])
@pytest.mark.parametrize("time", [1, -3, 4])
def test_rotation_transport_moves_each_slice_and_permutes_orientations(time, features):
    flow = Rotation(velocities=[-90, 0, 90, 180], group=SE2(8))
    h = torch.randn(2, 4, 3 * 8, 5, 5)
    got = flow.transport(h, time, features=features)
    for index, quarter in enumerate((-1, 0, 1, 2)):
        want = torch.rot90(h[:, index], quarter * time, (-2, -1)).reshape(2, 3, 8, 5, 5)
        if features:
            want = torch.stack([want[:, :, (n - 2 * quarter * time) % 8] for n in range(8)], 2)
        assert torch.equal(got[:, index], want.flatten(1, 2))


def test_rotation_transport_by_a_time_for_each_step_equals_a_loop():
    flow, h = Rotation(count=2, group=SE2(36)), torch.randn(2, 3, 5, 36, 6, 6, dtype=torch.double)
    time = torch.tensor([0, -2, 5])
    want = torch.stack(
        [
            torch.stack(
                [
                    flow.act(h[:, t, i], v, time[t], features=True)
                    for i, v in enumerate(flow.velocities)
                ],
                1,
            )
            for t in range(3)
        ],
        1,
    )
    assert torch.equal(flow.transport(h, time), want)
    assert torch.equal(
        flow.transport(h[:, :, :1], time)[:, 2, 4], flow.act(h[:, 2, 0], 20, 5, features=True)
    )


def test_rotation_act_on_features_takes_a_velocity_for_each_sample():
    flow = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
    h, velocity = torch.randn(4, 4, 5, 5), torch.tensor([[0], [90], [180], [270]])
    want = torch.stack([torch.rot90(h[b], b, (-2, -1)).roll(b, 0) for b in range(4)])
    assert torch.equal(flow.act(h, velocity, features=True), want)


@pytest.mark.parametrize(
    ("flow", "shift", "index"),
    [
        (QUARTERS, 90, [3, 0, 1, 2]),
        (QUARTERS, -90, [1, 2, 3, 0]),
        (QUARTERS, 450, [3, 0, 1, 2]),
        (Rotation(velocities=[180, -90, 0]), 90, [-1, 0, 1]),
        (Rotation(velocities=[180, -90, 0]), 180, [2, -1, 0]),
        (Rotation(count=2), 10, [-1, 0, 1, 2, 3]),
        (Rotation(count=2), -20, [2, 3, 4, -1, -1]),
        (Rotation(count=2), 5, [-1] * 5),
        (Rotation(count=2), 370, [-1, 0, 1, 2, 3]),
        (Rotation(count=1, degrees=120), 120, [2, 0, 1]),
        (Rotation(count=2, degrees=22.5), 22.5, [-1, 0, 1, 2, 3]),
    ],
)
def test_rotation_relative_counts_modulo_360(flow, shift, index):
    assert flow.relative(shift).tolist() == index
    assert flow.relative(torch.tensor([shift])).tolist() == index


@pytest.mark.parametrize("degrees", [360 / 7, 0.1, 33.3])
def test_rotation_relative_finds_velocities_that_binary_fractions_miss(degrees):
    flow = Rotation(count=1, degrees=degrees)
    assert flow.relative(degrees).tolist() == [-1, 0, 1]
    assert flow.relative(flow.velocities[2]).tolist() == [-1, 0, 1]


def test_rotation_velocities_hold_their_degrees_in_double_precision():
    assert Rotation(count=1, degrees=0.1).velocities.tolist() == [[-0.1], [0.0], [0.1]]


def test_rotation_by_a_fifth_five_times_is_the_whole_angle():
    x = torch.randn(7, 7, dtype=torch.double)
    assert same(Rotation(count=1).act(x, 359 / 5, 5), sampled(x, 359))


def test_rotation_is_a_value():
    assert Rotation(count=1) == Rotation(velocities=[-10, 0, 10])
    assert hash(Rotation(count=1)) == hash(Rotation(velocities=[-10, 0, 10]))
    assert Rotation(count=1) != Rotation(count=2)
    assert Rotation(count=1) != Rotation(count=1, group=SE2(36))
    assert Rotation(count=0) != Translation(velocities=[0])


@pytest.mark.parametrize(
    "flow",
    [
        Rotation(count=4),
        Rotation(count=3, degrees=7.5),
        Rotation(velocities=[0, 90, 180, 270]),
        Rotation(count=2, group=SE2(36)),
        Rotation(velocities=[-1 / 3, 0, 1 / 3]),
    ],
    ids=str,
)
def test_rotation_repr_evaluates_back(flow):
    made = eval(repr(flow), vars(fernn))
    assert made == flow
    assert hash(made) == hash(flow)


def test_rotation_is_exact_for_quarter_turns_alone():
    assert QUARTERS.exact
    assert Rotation(count=0).exact
    assert not Rotation(count=4).exact
    assert not Rotation(velocities=[0, 90, 45]).exact


def test_rotation_act_is_orthogonal_at_quarter_turns_and_so_is_its_gradient():
    x = torch.randn(4, 5, 5, dtype=torch.double, requires_grad=True)
    y = torch.randn(4, 5, 5, dtype=torch.double)
    velocity = QUARTERS.velocities
    inner = (QUARTERS.act(x, velocity) * y).sum()
    assert same(inner, (x * QUARTERS.act(y, velocity, -1)).sum())
    (grad,) = torch.autograd.grad(inner, x)
    assert torch.equal(grad, QUARTERS.act(y, velocity, -1))


@pytest.mark.parametrize("features", [False, True])
def test_rotation_act_differentiates_twice(features):
    flow = Rotation(velocities=[0, 90, 30], group=SE2(12))
    h = torch.randn(1, 3, 12, 2, 2, dtype=torch.double, requires_grad=True)

    def transport(x):
        return flow.transport(x, 2, features=features).sin()

    assert torch.autograd.gradcheck(transport, h, fast_mode=True)
    assert torch.autograd.gradgradcheck(transport, h, fast_mode=True)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_rotation_keeps_the_dtype_of_the_signal(dtype):
    x = smooth(9, 2).to(dtype)
    moved = Rotation(count=1).act(x, 30)
    assert moved.dtype == dtype
    assert error(moved, Rotation(count=1).act(x.double(), 30)) < TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotation(), "exactly one of `count`.*got count=None, velocities=None"),
        (lambda: Rotation(1, velocities=[0]), "exactly one of `count`.*count=1"),
        (lambda: Rotation(count=-1), "`count` must be a non-negative integer, got -1"),
        (lambda: Rotation(count=1.0), "`count` must be a non-negative integer, got 1.0"),
        (lambda: Rotation(count=1, degrees=math.nan), "`degrees` must be finite, got"),
        (
            lambda: Rotation(count=1, degrees=0),
            "`degrees` must not be 0",
        ),
        (
            lambda: Rotation(velocities=[0, 5], degrees=5),
            "`degrees` must not be given with `velocities`, got 5",
        ),
        (lambda: Rotation(velocities=[]), "`velocities` must not be empty"),
        (lambda: Rotation(velocities=[0, math.inf]), "`velocities` must be finite, got"),
        (lambda: Rotation(velocities=[0, math.nan]), "`velocities` must be finite, got"),
        (lambda: Rotation(velocities=[0, 10, 10]), "distinct, got \\(10.0,\\) twice"),
        (lambda: Rotation(velocities=[[0, 10], [20, 30]]), "one number each, got .*\\(2, 2\\)"),
        (lambda: Rotation(velocities=[180, -180]), "distinct, got \\(180.0,\\) twice"),
        (lambda: Rotation(velocities=[0, 360]), "distinct, got \\(0.0,\\) twice"),
        (lambda: Rotation(velocities=[10]).zero, "must contain the zero velocity.*Add it"),
        (lambda: SE2(0), "`orientations` must be a positive integer, got 0"),
    ],
)
def test_rotation_refuses_a_bad_velocity_set(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda x: QUARTERS.act(x, (90, 0)), ValueError, "`velocity` must have 1 component for"),
        (lambda x: QUARTERS.act(x, math.nan), ValueError, "`velocity` must be finite and real"),
        (lambda x: QUARTERS.act(x, math.inf), ValueError, "`velocity` must be finite and real"),
        (lambda x: QUARTERS.act(x, torch.ones(1) * 1j), ValueError, "must be finite and real"),
        (lambda x: QUARTERS.relative(math.nan), ValueError, "`velocity` must be finite and real"),
        (lambda x: QUARTERS.act(x[..., :3], 90), ValueError, "must be square.*5×3.*Pad the image"),
        (lambda x: QUARTERS.transport(x[:, :, :3]), ValueError, "must be square.*3×5"),
        (lambda x: QUARTERS.act(x[0, 0, 0], 90), ValueError, "at least 2 axes, got shape \\(5,\\)"),
        (lambda x: QUARTERS.act(x.long(), 90), TypeError, "floating-point tensor, got torch.int64"),
        (lambda x: QUARTERS.act(x + 0j, 90), TypeError, "floating-point tensor, got torch.complex"),
        (lambda x: QUARTERS.transport(x[:3]), ValueError, "must be lifted.*V = 4"),
        (
            lambda x: Rotation(count=1, group=SE2(8)).act(x, 10, features=True),
            ValueError,
            "multiples of 45° to permute.*got 10°.*multiple of 36",
        ),
        (
            lambda x: Rotation(count=1, group=SE2(8)).transport(x[:3]),
            ValueError,
            "multiples of 45° to permute.*multiple of 36",
        ),
    ],
)
def test_rotation_refuses_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call(torch.zeros(4, 8, 5, 5))


@pytest.mark.parametrize("time", [math.nan, math.inf])
def test_rotation_refuses_a_time_that_is_not_finite(time):
    with pytest.raises(ValueError, match="`time` must be finite"):
        Rotation(count=1).act(torch.zeros(5, 5), 10, time)


def test_rotation_refuses_to_permute_orientations_by_half_a_step():
    with pytest.raises(ValueError, match="multiples of 10° to permute"):
        Rotation(count=1, group=SE2(36)).act(torch.zeros(36, 5, 5), 10, 0.5, features=True)


def test_rotation_refuses_a_quarter_turn_of_a_rectangle_also_alone():
    with pytest.raises(ValueError, match="must be square"):
        Rotation(velocities=[90]).act(torch.zeros(5, 4), 90)


def test_rotation_turns_a_rectangle_half_way_round():
    x = torch.randn(5, 4)
    assert torch.equal(Rotation(velocities=[0, 180]).act(x, 180), x.flip(-2, -1))


def test_rotation_relative_refuses_many_velocities():
    with pytest.raises(ValueError, match="`velocity` must"):
        QUARTERS.relative(torch.zeros(2, 1))


def test_rotation_refuses_features_without_whole_orientations():
    with pytest.raises(ValueError, match="channels"):
        Rotation(count=1, group=SE2(36)).act(torch.zeros(7, 5, 5), 10, features=True)


def test_rotation_transport_refuses_to_permute_orientations_by_half_a_step():
    with pytest.raises(ValueError, match="multiples of 10° to permute"):
        Rotation(count=1, group=SE2(36)).transport(torch.zeros(3, 36, 5, 5), 0.5)


@pytest.mark.parametrize(
    "make", [lambda g: Rotation(1, group=g), lambda g: RigidMotion([(0, 0, 0)], group=g)]
)
def test_plane_flows_refuse_what_is_not_a_group(make):
    with pytest.raises(TypeError, match=r"`group` must be a SE2, got 36. .*SE2\(36\)"):
        make(36)
