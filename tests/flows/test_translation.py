"""Translation: exact group laws on a torus of one, two or three dimensions."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import same

from fernn import Translation


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
