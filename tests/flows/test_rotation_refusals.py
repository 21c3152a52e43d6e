"""Rotation: velocities, times and signals that it refuses, and what it says of them."""

import math

import pytest
import torch

from fernn import SE2, RigidMotion, Rotation

QUARTERS = Rotation(velocities=[0, 90, 180, 270])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Rotation(), "exactly one of `count`.*got count=None, velocities=None"),
        (lambda: Rotation(1, velocities=[0]), "exactly one of `count`.*count=1"),
        (lambda: Rotation(count=-1), "`count` must be a non-negative integer, got -1"),
        (lambda: Rotation(count=1.0), "`count` must be a non-negative integer, got 1.0"),
        (lambda: Rotation(count=1, degrees=math.nan), "`degrees` must be finite and real, got"),
        (
            lambda: Rotation(count=1, degrees=0),
            "`degrees` must not be 0",
        ),
        (
            lambda: Rotation(velocities=[0, 5], degrees=5),
            "`degrees` must not be given with `velocities`, got 5",
        ),
        (lambda: Rotation(velocities=[]), "`velocities` must not be empty"),
        (lambda: Rotation(velocities=[0, math.inf]), "`velocities` must be finite and real"),
        (lambda: Rotation(velocities=[0, math.nan]), "`velocities` must be finite and real"),
        (lambda: Rotation(count=18), "`count` must keep .* got 18 steps of 10° either way"),
        (lambda: Rotation(velocities=[0, 10, 10]), "distinct, got \\(10.0,\\) twice"),
        (lambda: Rotation(velocities=[[0, 10], [20, 30]]), "one number each, got \\(0, 10\\)"),
        (lambda: Rotation(velocities=[(0,), (1, 2)]), "one number each, got \\(1, 2\\)"),
        (lambda: Rotation(velocities=["a"]), r"`velocities` must be finite and real, got \('a',\)"),
        (lambda: Rotation(velocities=[None]), "`velocities` must be finite and real, got \\(None"),
        (lambda: Rotation(velocities=4), "`velocities` must be a list, got 4"),
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
