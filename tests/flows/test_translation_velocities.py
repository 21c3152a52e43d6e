"""Translation: its set of velocities, differences within it, and the flow as a value."""

import math

import numpy as np
import pytest
import torch

import fernn
from fernn import Rotation, Translation
from fernn.groups import Lattice


def test_translation_velocities_are_a_lattice_a_list_or_the_torus():
    assert Translation(radius=1, dim=1).velocities.tolist() == [[-1], [0], [1]]
    assert len(Translation(radius=2)) == 25
    assert len(Translation(radius=2, dim=3)) == 125
    assert Translation(radius=1).velocities[:4].tolist() == [[-1, -1], [-1, 0], [-1, 1], [0, -1]]
    along = [(0, v) for v in (-5, -3, -1, 0, 1, 3, 5)]
    assert Translation(velocities=along).velocities.tolist() == [list(v) for v in along]
    assert Translation(velocities=[3, 0]).velocities.tolist() == [[3], [0]]
    assert Translation(closed=(2, 3)).velocities.tolist() == [
        [r, c] for r in (0, 1) for c in range(3)
    ]
    assert Translation(radius=1).exact
    assert Translation(radius=2).group == Lattice(2)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_translation_accepts_arrays_and_tensors(make):
    table = [(0, 0), (0, 1)]
    assert Translation(velocities=[make(row) for row in table]) == Translation(velocities=table)
    assert Translation(velocities=make(table)) == Translation(velocities=table)
    assert Translation(velocities=make([0, 3])) == Translation(velocities=[0, 3])
    parts = [tuple(map(make, row)) for row in table]
    assert Translation(velocities=parts) == Translation(velocities=table)


@pytest.mark.parametrize(
    ("flow", "index"),
    [
        (Translation(radius=2), 12),
        (Translation(closed=(3, 3)), 0),
        (Translation(velocities=[(1, 0), (0, 0)]), 1),
    ],
)
def test_translation_zero_is_the_frame_at_rest(flow, index):
    assert flow.zero == index
    assert not flow.velocities[flow.zero].any()


@pytest.mark.parametrize("shift", [(0, 0), (1, 0), (-2, 1), (4, 4), (5, 0)])
@pytest.mark.parametrize(
    "flow",
    [
        Translation(radius=2),
        Translation(velocities=[(0, v) for v in (-5, -3, -1, 0, 1, 3, 5)]),
        Translation(velocities=[(1, 0), (-2, 1), (0, 0), (3, -1)]),
        Translation(closed=(5, 4)),
    ],
    ids=str,
)
def test_translation_relative_finds_nu_minus_nu_hat(flow, shift):
    table = flow.velocities.tolist()
    size = flow.closed or (math.inf, math.inf)
    for index, (row, column) in zip(flow.relative(shift).tolist(), table, strict=True):
        want = [row - shift[0], column - shift[1]]
        if flow.closed:
            want = [w % n for w, n in zip(want, size, strict=True)]
        assert index == (table.index(want) if want in table else -1)


def test_translation_relative_is_a_permutation_when_closed():
    flow = Translation(closed=(4, 3))
    for velocity in ((1, 0), (3, 2), (-7, 5)):
        assert sorted(flow.relative(velocity).tolist()) == list(range(12))


def test_translation_is_a_value():
    assert Translation(radius=1) == Translation(radius=1)
    assert Translation(radius=1) == Translation(velocities=Translation(radius=1).velocities)
    assert hash(Translation(radius=1)) == hash(Translation(velocities=Translation(1).velocities))
    assert Translation(radius=1) != Translation(radius=2)
    assert Translation(radius=0) != Translation(radius=0, dim=1)
    assert Translation(velocities=[(0, 0), (0, 1)]) != Translation(closed=(1, 2))
    assert Translation(velocities=[0]) != Rotation(velocities=[0])
    assert len({Translation(radius=1), Translation(radius=1), Translation(radius=2)}) == 2


@pytest.mark.parametrize(
    "flow",
    [
        Translation(radius=2),
        Translation(radius=1, dim=1),
        Translation(radius=1, dim=3),
        Translation(velocities=[(0, -3), (0, 0), (0, 3)]),
        Translation(velocities=[2, 0]),
        Translation(closed=(5, 4)),
    ],
    ids=str,
)
def test_translation_repr_evaluates_back(flow):
    made = eval(repr(flow), vars(fernn))
    assert made == flow
    assert hash(made) == hash(flow)
    assert repr(made) == repr(flow)


def test_translation_is_frozen():
    flow = Translation(closed=(3, 3))
    with pytest.raises(AttributeError):
        flow.closed = None


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["array", "tensor"])
def test_flows_take_arrays_for_velocities(make):
    listed = [(0, -3), (0, 0), (0, 3)]
    assert Translation(velocities=make(listed)) == Translation(velocities=listed)
    assert Translation(closed=make([4, 5])) == Translation(closed=(4, 5))
    assert Rotation(velocities=make([0.0, 7.5])) == Rotation(velocities=[0, 7.5])
