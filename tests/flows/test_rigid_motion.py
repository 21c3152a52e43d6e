"""RigidMotion: exp(tν) in SE(2), with velocities that commute."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import TOLERANCE, error, same, smooth

import fernn
from fernn import SE2, RigidMotion, Rotation

SLIDES = RigidMotion([(0, 0, 0), (0, 0.5, 0), (0, 0, 0.5), (0, -0.5, -0.5)])


def generator(velocity):
    """ν as a 3×3 matrix on (x right, y up, 1), which the matrix exponential takes."""
    degrees, rows, columns = (float(v) for v in velocity)
    turn = math.radians(degrees)
    return torch.tensor([[0, -turn, columns], [turn, 0, -rows], [0, 0, 0]], dtype=torch.double)


def matrix(element):
    """A group element (degrees, rows, columns) as a 3×3 matrix: turn, then move."""
    degrees, rows, columns = element.tolist()
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[cos, -sin, columns], [sin, cos, -rows], [0, 0, 1]], dtype=torch.double)


def exponential(a):
    """exp(a) by its series after halving; torch's own errs by 4e-12 on small matrices."""
    small, term = torch.eye(3, dtype=torch.double), torch.eye(3, dtype=torch.double)
    for n in range(1, 20):
        term = term @ a / (64 * n)
        small = small + term
    return torch.linalg.matrix_power(small, 64)


angles, pixels, times = st.floats(-180, 180), st.floats(-4, 4), st.floats(-6, 6)


@given(angles, pixels, pixels, times)
def test_rigid_motion_exp_is_the_matrix_exponential(degrees, rows, columns, time):
    velocity = torch.tensor([degrees, rows, columns], dtype=torch.double)
    element = RigidMotion([(0, 0, 0)]).exp(velocity, torch.tensor(time, dtype=torch.double))
    want = exponential(time * generator(velocity))
    assert same(matrix(element), want)


@given(angles, pixels, pixels, times, times)
def test_rigid_motion_exp_is_a_flow(degrees, rows, columns, s, t):
    flow = RigidMotion([(0, 0, 0)])
    velocity = torch.tensor([degrees, rows, columns], dtype=torch.double)
    one, other, both = (
        matrix(flow.exp(velocity, torch.tensor(time, dtype=torch.double))) for time in (s, t, s + t)
    )
    assert same(one @ other, both)


def test_rigid_motion_slides_whole_pixels_off_the_image():
    x = torch.randn(2, 5, 6)
    moved = RigidMotion([(0, 0, 0)]).act(x, (0, 1, -2))
    want = torch.zeros_like(x)
    want[:, 1:, :-2] = x[:, :-1, 2:]
    assert torch.equal(moved, want)


def test_rigid_motion_slides_half_a_pixel_by_averaging():
    x = torch.randn(5, 6, dtype=torch.double)
    moved = SLIDES.act(x, (0, 0, 0.5))
    left = torch.cat([torch.zeros(5, 1, dtype=torch.double), x[:, :-1]], 1)
    assert same(moved, (x + left) / 2)


@pytest.mark.parametrize("time", [1, 2, 3])
def test_rigid_motion_turns_about_a_point_that_stays(time):
    """The generator 90·(turn) with the translation that keeps the pixel (6, 3) of 9×9 in place."""
    turn = math.radians(90)
    row, column = 6 - 4, 3 - 4
    velocity = torch.tensor([90.0, turn * column, -turn * row], dtype=torch.double)
    image = torch.zeros(9, 9, dtype=torch.double)
    image[6, 3], image[6, 5] = 1.0, 2.0
    moved = RigidMotion([(0, 0, 0)]).act(image, velocity, time)
    assert moved[6, 3] == pytest.approx(1.0, abs=TOLERANCE[torch.float64])
    place = {1: (4, 3), 2: (6, 1), 3: (8, 3)}[time]
    assert moved[place] == pytest.approx(2.0, abs=TOLERANCE[torch.float64])


@pytest.mark.parametrize("group", [SE2(1), SE2(36)])
def test_rigid_motion_without_translation_is_a_rotation(group):
    x = torch.randn(3, 36, 7, 7, dtype=torch.double)
    rigid = RigidMotion([(-10, 0, 0), (0, 0, 0), (10, 0, 0)], group=group)
    turn = Rotation(count=1, group=group)
    assert torch.equal(rigid.act(x, (20, 0, 0), 3), turn.act(x, 20, 3))
    assert torch.equal(rigid.transport(x, 3), turn.transport(x, 3))


def test_rigid_motion_of_each_sample_equals_a_loop():
    x = torch.randn(4, 2, 6, 7, dtype=torch.double)
    want = torch.stack([SLIDES.act(x[i], v, 3) for i, v in enumerate(SLIDES.velocities)])
    assert torch.equal(SLIDES.act(x, SLIDES.velocities, 3), want)
    assert torch.equal(SLIDES.transport(x, 3), want)
    time = torch.tensor([1.0, -2.0, 0.5, 0.0])
    want = torch.stack([SLIDES.act(x[i], (0, 0.5, 0), t) for i, t in enumerate(time)])
    assert torch.equal(SLIDES.act(x, (0, 0.5, 0), time), want)


@pytest.mark.parametrize(("width", "bound"), [(2, 0.14), (3, 0.07), (4, 0.04)])
def test_rigid_motion_by_half_a_pixel_there_and_back_costs_a_little(width, bound):
    """Measured on Gaussians of 2, 3 and 4 pixels: 0.133, 0.065, 0.039 along the diagonal, the worst
    case of bilinear sampling, and 0.079, 0.038, 0.023 along an axis."""
    x = smooth(33, width)
    straight, diagonal = (
        error(SLIDES.act(SLIDES.act(x, velocity), velocity, -1), x)
        for velocity in ((0, 0.5, 0), (0, 0.5, 0.5))
    )
    assert 0 < straight < diagonal < bound


def test_rigid_motion_relative_subtracts_in_the_algebra():
    assert SLIDES.relative((0, 0.5, 0)).tolist() == [-1, 0, -1, -1]
    assert SLIDES.relative((0, -0.5, -0.5)).tolist() == [-1, -1, -1, 0]


def test_rigid_motion_relative_finds_velocities_that_binary_fractions_miss():
    tenth = RigidMotion([(0, 0, 0), (0, 0.1, 0), (0, 0.2, 0)])
    assert tenth.relative((0, 0.1, 0)).tolist() == [-1, 0, 1]


@pytest.mark.parametrize(
    "flow", [SLIDES, RigidMotion([(0, 0, 0), (10, 0.1, 1 / 3)], group=SE2(36))], ids=str
)
def test_rigid_motion_is_a_value_whose_repr_evaluates_back(flow):
    made = eval(repr(flow), vars(fernn))
    assert made == flow
    assert hash(made) == hash(flow)
    assert flow != RigidMotion([(0, 0, 0)])


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_rigid_motion_accepts_arrays_and_tensors(make):
    table = [(0, 0, 0), (0, 0.5, 0)]
    assert RigidMotion([make(row) for row in table]) == RigidMotion(table)
    assert RigidMotion(make(table)) == RigidMotion(table)


def test_rigid_motion_accepts_turns_about_one_centre():
    flow = RigidMotion([(10 * k, 0.3 * k, -0.7 * k) for k in (-2, -1, 0, 1, 2)])
    assert len(flow) == 5
    assert not flow.exact
    assert RigidMotion([(0, 0, 0), (90, 0, 0)]).exact


@pytest.mark.parametrize(
    ("velocities", "message"),
    [
        ([(0, 0, 0), (10, 0, 0), (0, 1, 0)], "must commute pairwise, got .*10.* and .*1.*bracket"),
        ([(10, 0, 0), (10, 1, 0)], "must commute pairwise"),
        ([(0, 0)], "must be \\(degrees, rows, columns\\) triples, got \\(0.0, 0.0\\)"),
        ([(0, 0, math.nan)], "`velocities` must be finite and real"),
        ([(0, 0, math.inf)], "`velocities` must be finite and real"),
        ([0, 0, 0], "must be \\(degrees, rows, columns\\) triples, got \\(0.0,\\)"),
        ([(0, None, 0)], "`velocities` must be finite and real, got \\(0, None, 0\\)"),
        (["abc"], "`velocities` must be finite and real, got \\('a', 'b', 'c'\\)"),
        (None, "`velocities` must be a list, got None"),
        ([(0, 1, 0), (0, 1, 0)], "must be distinct, got \\(0.0, 1.0, 0.0\\) twice"),
        ([], "`velocities` must not be empty"),
    ],
)
def test_rigid_motion_refuses_a_bad_velocity_set(velocities, message):
    with pytest.raises(ValueError, match=message):
        RigidMotion(velocities)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: SLIDES.act(x, (0, 1)), "`velocity` must have 3 components.*got shape \\(2,\\)"),
        (lambda x: SLIDES.act(x, (0, math.nan, 0)), "`velocity` must be finite and real"),
        (lambda x: SLIDES.transport(x[:3]), "must be lifted.*V = 4"),
    ],
)
def test_rigid_motion_refuses_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call(torch.zeros(4, 1, 5, 5))
