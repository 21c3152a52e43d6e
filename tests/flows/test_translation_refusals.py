"""Translation: velocities, times and signals that it refuses, and what it says of them."""

import math

import numpy as np
import pytest
import torch

from fernn import Rotation, Translation


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Translation(), "exactly one of `radius`.*got radius=None"),
        (lambda: Translation(1, closed=(3, 3)), "exactly one of `radius`.*closed=\\(3, 3\\)"),
        (lambda: Translation(radius=-1), "`radius` must be a non-negative integer, got -1"),
        (lambda: Translation(radius=1.5), "`radius` must be a non-negative integer, got 1.5"),
        (lambda: Translation(radius=True), "`radius` must be a non-negative integer, got True"),
        (lambda: Translation(radius=1, dim=4), "`dim` must be 1, 2 or 3, got 4"),
        (lambda: Translation(velocities=[]), "`velocities` must not be empty"),
        (
            lambda: Translation(velocities=[(0, 1), (0, 0), (0, 1)]),
            "distinct, got \\(0, 1\\) twice",
        ),
        (lambda: Translation(velocities=[(0, 0), (0, 1, 2)]), "same 1, 2 or 3 components, got"),
        (lambda: Translation(velocities=[(0, 0, 0, 0)]), "same 1, 2 or 3 components, got"),
        (lambda: Translation(velocities=[(0, 0.5)]), "whole pixels.*got \\(0, 0.5\\).*RigidMotion"),
        (lambda: Translation(velocities=[(0, math.nan)]), "`velocities` must be finite and real"),
        (lambda: Translation(velocities=[(0, math.inf)]), "`velocities` must be finite and real"),
        (
            lambda: Translation(velocities="ab"),
            r"`velocities` must be finite and real, got \('a',\)",
        ),
        (lambda: Translation(velocities=[(0, None)]), "finite and real, got \\(0, None\\)"),
        (lambda: Translation(velocities=[((0, 1), (2, 3))]), "finite and real, got \\(\\(0, 1\\)"),
        (lambda: Translation(velocities=[1j]), "finite and real, got \\(1j,\\)"),
        (lambda: Translation(velocities=1), "`velocities` must be a list, got 1"),
        (lambda: Translation(closed=(np.array([3, 3]),)), "`closed` must be a positive integer"),
        (lambda: Translation(closed=(5, 0)), "`closed` must be a positive integer, got 0"),
        (lambda: Translation(velocities=[(0, 1)]).zero, "must contain the zero velocity.*Add it"),
    ],
)
def test_translation_refuses_a_bad_velocity_set(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda f, x: f.act(x, (1, 2, 3)),
            ValueError,
            "`velocity` must have 2 components.*\\(3,\\)",
        ),
        (
            lambda f, x: f.act(x, 1),
            ValueError,
            "`velocity` must have 2 components.*got shape \\(\\)",
        ),
        (lambda f, x: f.relative((1,)), ValueError, "`velocity` must have 2 components"),
        (lambda f, x: f.act(x, (0.5, 0)), ValueError, "`velocity` must be whole.*RigidMotion"),
        (lambda f, x: f.relative((0.5, 0)), ValueError, "`velocity` must be whole"),
        (lambda f, x: f.act(x, (math.nan, 0)), ValueError, "`velocity` must be finite and real"),
        (lambda f, x: f.act(x, (math.inf, 0)), ValueError, "`velocity` must be finite and real"),
        (
            lambda f, x: f.act(x, torch.zeros(2) * 1j),
            ValueError,
            "`velocity` must be finite and real",
        ),
        (lambda f, x: f.act(x, (1, 0), 0.5), ValueError, "`time` must be whole.*got 0.5"),
        (lambda f, x: f.act(x, (1, 0), math.nan), ValueError, "`time` must be finite"),
        (lambda f, x: f.act(x[0, 0, 0], (1, 0)), ValueError, "at least 2 axes, got shape \\(4,\\)"),
        (
            lambda f, x: f.act(x, torch.zeros(2, 1, 1, 2)),
            ValueError,
            "must index leading axes of x",
        ),
        (
            lambda f, x: f.act(x, (1, 0), torch.zeros(2, 1, 1)),
            ValueError,
            "must index leading axes",
        ),
        (
            lambda f, x: f.act(x.long(), (1, 0)),
            TypeError,
            "real floating-point tensor, got torch.int64",
        ),
        (
            lambda f, x: f.act(x + 0j, (1, 0)),
            TypeError,
            "floating-point tensor, got torch.complex64",
        ),
        (lambda f, x: f.act(x.tolist(), (1, 0)), TypeError, "must be a torch.Tensor, got list"),
        (
            lambda f, x: f.act_sequence(x[0], (1, 0)),
            ValueError,
            "`x` must be a sequence, \\[B, T, ..., \\*X\\], .*got shape \\(3, 5, 4\\)",
        ),
        (
            lambda f, x: f.act_sequence(x[0, 0, 0], (1, 0)),
            ValueError,
            "at least 2 axes, got shape \\(4,\\)",
        ),
        (lambda f, x: f.act_sequence(x.tolist(), (1, 0)), TypeError, "`x` must be a torch.Tensor"),
        (
            lambda f, x: f.transport(x),
            ValueError,
            "must be lifted.*V = 9 for Translation\\(radius=1\\)",
        ),
        (lambda f, x: f.transport(x[0]), ValueError, "must be lifted.*got shape \\(3, 5, 4\\)"),
        (
            lambda f, x: f.transport(torch.zeros(9, 1, 5, 4).int()),
            TypeError,
            "floating-point tensor",
        ),
    ],
)
def test_translation_refuses_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call(Translation(radius=1), torch.zeros(2, 3, 5, 4))


def test_translation_closed_refuses_another_canvas():
    flow = Translation(closed=(5, 5))
    message = "canvas \\(5, 5\\).*got \\(5, 4\\).*Translation\\(closed=\\(5, 4\\)\\)"
    with pytest.raises(ValueError, match=message):
        flow.act(torch.zeros(5, 4), (1, 0))
    with pytest.raises(ValueError, match=message):
        flow.transport(torch.zeros(25, 1, 5, 4))


def test_translation_refuses_to_close_on_an_empty_canvas():
    with pytest.raises(ValueError, match="`closed` must"):
        Translation(closed=())


def test_translation_refuses_a_dimension_that_contradicts_its_velocities():
    with pytest.raises(ValueError, match="`dim`"):
        Translation(closed=(3, 3), dim=3)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f.act(torch.zeros(3, 5, 4), torch.zeros(2, 2, dtype=torch.long)),
        lambda f: f.act(torch.zeros(3, 5, 4), (1, 0), torch.zeros(2, dtype=torch.long)),
        lambda f: f.transport(torch.zeros(9, 1, 5, 4), torch.zeros(2, 3, dtype=torch.long)),
    ],
)
def test_translation_refuses_velocities_and_times_of_another_batch(call):
    with pytest.raises(ValueError, match=r"`(velocity|time)`"):
        call(Translation(radius=1))


def test_translation_points_from_a_list_to_velocities():
    with pytest.raises(ValueError, match=r"Translation\(velocities=\[\(0, 0\), \(0, 1\)\]\)"):
        Translation([(0, 0), (0, 1)])
    assert Translation(radius=np.int64(1)) == Translation(radius=1)
    assert Translation(closed=4) == Translation(closed=(4,))


@pytest.mark.parametrize(
    ("make", "name", "count"),
    [
        (lambda: Translation(radius=10**6), "radius", "4,000,004,000,001"),
        (lambda: Translation(closed=(10**5, 10**5)), "closed", "10,000,000,000"),
        (lambda: Rotation(count=10**9, degrees=1e-9), "count", "2,000,000,001"),
    ],
)
def test_velocities_beyond_count_are_refused_before_they_are_listed(make, name, count):
    message = f"`{name}` must make at most 1,048,576 velocities, got {count}"
    with pytest.raises(ValueError, match=message):
        make()
