"""Rotation: its set of velocities, differences modulo 360°, and the flow as a value."""

import numpy as np
import pytest
import torch

import fernn
from fernn import SE2, Rotation, Translation

QUARTERS = Rotation(velocities=[0, 90, 180, 270])


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


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_rotation_accepts_arrays_and_tensors(make):
    turns = Rotation(velocities=[0, 90])
    assert Rotation(velocities=make([0, 90])) == turns
    assert Rotation(velocities=[make(0), make(90)]) == turns
    assert Rotation(velocities=make([[0], [90]])) == turns


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_rotation_relative_knows_a_velocity_in_any_precision(dtype):
    sevenths = Rotation(velocities=[360 * k / 7 for k in range(7)])
    shift = torch.tensor([360 / 7], dtype=dtype)
    assert sevenths.relative(shift).tolist() == [6, 0, 1, 2, 3, 4, 5]
    assert sevenths.relative(-shift).tolist() == [1, 2, 3, 4, 5, 6, 0]
    small = Rotation(count=2, degrees=0.7)
    assert small.relative(torch.tensor([0.7], dtype=dtype)).tolist() == [-1, 0, 1, 2, 3]
    assert small.relative(torch.tensor([0.69], dtype=torch.float64)).tolist() == [-1] * 5


def test_rotation_takes_a_time_between_frames():
    flow, x = Rotation(count=4, group=SE2(36)), torch.rand(36, 9, 9)
    tenth = flow.act(x, 10.0, features=True)
    assert torch.equal(flow.act(x, 50.0, time=0.2, features=True), tenth)  # 0.2 is no float32


@pytest.mark.parametrize("degrees", [360 / 7, 0.1, 33.3])
def test_rotation_relative_finds_velocities_that_binary_fractions_miss(degrees):
    flow = Rotation(count=1, degrees=degrees)
    assert flow.relative(degrees).tolist() == [-1, 0, 1]
    assert flow.relative(flow.velocities[2]).tolist() == [-1, 0, 1]


def test_rotation_velocities_hold_their_degrees_in_double_precision():
    assert Rotation(count=1, degrees=0.1).velocities.tolist() == [[-0.1], [0.0], [0.1]]


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
