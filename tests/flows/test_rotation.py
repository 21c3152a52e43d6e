"""Rotation: counter-clockwise as displayed, exact at quarter turns, bilinear between them."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tolerances import TOLERANCE, error, same, smooth

from fernn import SE2, RigidMotion, Rotation

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


def test_rotation_by_a_fifth_five_times_is_the_whole_angle():
    x = torch.randn(7, 7, dtype=torch.double)
    assert same(Rotation(count=1).act(x, 359 / 5, 5), sampled(x, 359))


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


def test_rotation_turns_a_rectangle_half_way_round():
    x = torch.randn(5, 4)
    assert torch.equal(Rotation(velocities=[0, 180]).act(x, 180), x.flip(-2, -1))
