"""Translation: exact group laws on a torus of one, two or three dimensions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import same

import fernn
from fernn import Rotation, Translation
from fernn.groups import Lattice


def rolled(x, velocity, time=1):
    """ψ_t(ν)·x by torch.roll: the definition, without the library."""
    shift = [int(time * v) for v in velocity]
    return torch.roll(x, shift, tuple(range(-len(shift), 0)))


@st.composite
def scene(draw):
    """A canvas in 1-D, 2-D or 3-D with odd and even sides, two velocities and two times."""
    dim = draw(st.integers(1, 3))
    canvas = draw(st.lists(st.integers(1, 7), min_size=dim, max_size=dim))
    velocity = st.lists(st.integers(-9, 9), min_size=dim, max_size=dim)
    time = st.integers(-11, 11)
    x = torch.randn(2, *canvas, generator=torch.Generator().manual_seed(draw(st.integers(0, 99))))
    return Translation(radius=0, dim=dim), x, draw(velocity), draw(velocity), draw(time), draw(time)


@given(scene())
def test_translation_is_an_exact_flow(drawn):
    flow, x, velocity, other, s, t = drawn
    both = [a + b for a, b in zip(velocity, other, strict=True)]
    assert torch.equal(flow.act(x, velocity, 0), x)
    assert torch.equal(
        flow.act(flow.act(x, velocity, t), velocity, s), flow.act(x, velocity, s + t)
    )
    assert torch.equal(flow.act(flow.act(x, velocity, t), velocity, -t), x)
    assert torch.equal(flow.act(flow.act(x, other, t), velocity, t), flow.act(x, both, t))
    assert torch.equal(flow.act(x, velocity, t), rolled(x, velocity, t))


@given(scene())
def test_translation_acts_by_f_of_x_minus_t_nu(drawn):
    flow, x, velocity, _, _, t = drawn
    got = flow.act(x, velocity, t)
    for point in torch.cartesian_prod(*[torch.arange(n) for n in x.shape[1:]]).reshape(
        -1, x.ndim - 1
    ):
        source = [int(p - t * v) % n for p, v, n in zip(point, velocity, x.shape[1:], strict=True)]
        assert torch.equal(got[(slice(None), *point)], x[(slice(None), *source)])


def test_translation_moves_rows_down_and_columns_right():
    image = torch.zeros(5, 7)
    image[1, 3] = 1.0
    moved = Translation(radius=2).act(image, (1, -2))
    assert moved.nonzero().tolist() == [[2, 1]]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_translation_act_takes_a_velocity_and_a_time_for_each_sample(dim):
    flow = Translation(radius=3, dim=dim)
    x = torch.randn(4, 3, 2, *(5, 6, 3)[:dim])
    velocity = torch.randint(-3, 4, (4, dim))
    time = torch.tensor([0, 1, -2, 5])
    grid = torch.arange(12).reshape(4, 3)
    one = velocity[1]

    def loop(pick):
        return torch.stack([torch.stack([pick(b, t) for t in range(3)]) for b in range(4)])

    cases = [
        (flow.act(x, one.tolist(), 2), lambda b, t: rolled(x[b, t], one, 2)),
        (flow.act(x, one, torch.tensor(2)), lambda b, t: rolled(x[b, t], one, 2)),
        (flow.act(x, velocity), lambda b, t: rolled(x[b, t], velocity[b])),
        (flow.act(x, velocity, 3), lambda b, t: rolled(x[b, t], velocity[b], 3)),
        (flow.act(x, one, time), lambda b, t: rolled(x[b, t], one, time[b])),
        (flow.act(x, velocity, time), lambda b, t: rolled(x[b, t], velocity[b], time[b])),
        (
            flow.act(x, velocity[:, None], grid),
            lambda b, t: rolled(x[b, t], velocity[b], grid[b, t]),
        ),
        (
            flow.act(x, velocity.double(), time.double()),
            lambda b, t: rolled(x[b, t], velocity[b], time[b]),
        ),
    ]
    for got, pick in cases:
        assert torch.equal(got, loop(pick))


def test_translation_act_broadcasts_one_image_to_many_velocities():
    image, flow = torch.randn(1, 1, 5, 6), Translation(radius=1)
    moved = flow.act(image, flow.velocities)
    want = torch.stack([rolled(image[0], v) for v in flow.velocities])
    assert torch.equal(moved, want)


def test_translation_act_leaves_other_axes_alone_and_takes_strided_input():
    flow, x = Translation(radius=1), torch.randn(5, 6, 3, 2).permute(3, 2, 0, 1)
    assert not x.is_contiguous()
    assert torch.equal(flow.act(x, (1, 1), 2), rolled(x, (1, 1), 2))


@pytest.mark.parametrize("start", [0, 3, torch.tensor(2)])
def test_translation_act_sequence_moves_frame_t_by_t(start):
    flow, x = Translation(radius=2), torch.randn(2, 4, 3, 5, 6)
    each = torch.tensor([[1, -2], [2, 1]])
    want = torch.stack([rolled(x[:, t], (1, -2), t + int(start)) for t in range(4)], 1)
    assert torch.equal(flow.act_sequence(x, (1, -2), start=start), want)
    want = torch.stack(
        [
            torch.stack([rolled(x[b, t], each[b], t + int(start)) for t in range(4)])
            for b in range(2)
        ]
    )
    assert torch.equal(flow.act_sequence(x, each, start=start), want)


@pytest.mark.parametrize(
    "flow",
    [
        Translation(radius=1, dim=1),
        Translation(radius=1),
        Translation(radius=1, dim=3),
        Translation(velocities=[(0, -3), (0, 1), (2, 0)]),
        Translation(closed=(5, 3)),
    ],
    ids=str,
)
def test_translation_transport_moves_each_slice_by_its_own_velocity(flow):
    canvas = (5, 3, 4)[: flow.group.dim]
    table = flow.velocities
    h = torch.randn(2, 3, len(flow), 2, *canvas)
    for time in (1, -4, torch.tensor(3)):
        want = torch.stack([rolled(h[:, :, i], v, time) for i, v in enumerate(table)], 2)
        assert torch.equal(flow.transport(h, time), want)
    steps = torch.tensor([0, 2, -5])
    want = torch.stack(
        [
            torch.stack([rolled(h[:, t, i], v, steps[t]) for i, v in enumerate(table)], 1)
            for t in range(3)
        ],
        1,
    )
    assert torch.equal(flow.transport(h, steps), want)


def test_translation_transport_copies_a_slice_that_all_velocities_share():
    flow, x = Translation(radius=1), torch.randn(2, 1, 3, 5, 4)
    want = torch.stack([rolled(x[:, 0], v, -2) for v in flow.velocities], 1)
    assert torch.equal(flow.transport(x, -2), want)


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


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_translation_act_is_orthogonal_and_so_is_its_gradient(dim):
    flow, canvas = Translation(radius=2, dim=dim), (5, 4, 3)[:dim]
    velocity, time = torch.randint(-2, 3, (2, dim)), torch.tensor([3, -1])
    x = torch.randn(2, *canvas, dtype=torch.double, requires_grad=True)
    y = torch.randn(2, *canvas, dtype=torch.double)
    inner = (flow.act(x, velocity, time) * y).sum()
    assert same(inner, (x * flow.act(y, velocity, -time)).sum())
    (grad,) = torch.autograd.grad(inner, x)
    assert torch.equal(grad, flow.act(y, velocity, -time))


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_translation_act_and_transport_differentiate_twice(dim):
    flow, canvas = Translation(radius=1, dim=dim), (3, 2, 2)[:dim]
    shared = torch.randn(1, 1, 1, *canvas, dtype=torch.double, requires_grad=True)

    def act(x):
        return flow.act(x, flow.velocities[0], 2).sin()

    def transport(x):
        return flow.transport(x, 2).sin()

    for function in (act, transport):
        assert torch.autograd.gradcheck(function, shared)
        assert torch.autograd.gradgradcheck(function, shared)


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
        (lambda: Translation(velocities=[(0, math.nan)]), "`velocities` must be finite, got"),
        (lambda: Translation(velocities=[(0, math.inf)]), "`velocities` must be finite, got"),
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


def test_translation_is_frozen():
    flow = Translation(closed=(3, 3))
    with pytest.raises(AttributeError):
        flow.closed = None


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


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["array", "tensor"])
def test_flows_take_arrays_for_velocities(make):
    listed = [(0, -3), (0, 0), (0, 3)]
    assert Translation(velocities=make(listed)) == Translation(velocities=listed)
    assert Translation(closed=make([4, 5])) == Translation(closed=(4, 5))
    assert Rotation(velocities=make([0.0, 7.5])) == Rotation(velocities=[0, 7.5])


def test_translation_points_from_a_list_to_velocities():
    with pytest.raises(ValueError, match=r"Translation\(velocities=\[\(0, 0\), \(0, 1\)\]\)"):
        Translation([(0, 0), (0, 1)])
    assert Translation(radius=np.int64(1)) == Translation(radius=1)
    assert Translation(closed=4) == Translation(closed=(4,))
