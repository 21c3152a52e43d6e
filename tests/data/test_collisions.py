"""Two boxes in a room: by hand, in general, and against exact fractions."""

from fractions import Fraction
from functools import partial
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fernn.data import BouncingMNIST
from fernn.data._collisions import _rebound, bounce, clock
from fernn.flows import Translation

V2 = Translation(radius=2)
STEPS = clock(V2.velocities)
ROOM = (26, 46)


def tensor(*boxes) -> torch.Tensor:
    """Two boxes, each (row, column), as a batch of one."""
    return torch.tensor([boxes])


def energy(velocity: torch.Tensor) -> torch.Tensor:
    return (velocity**2).sum((-1, -2))


def gap(place: torch.Tensor, extent: torch.Tensor) -> torch.Tensor:
    """Pixels between two boxes, in the direction in which they are farther apart."""
    first, second = place.unbind(-2)
    sizes = extent[:, None].unbind(-2)
    return torch.maximum(second - first - sizes[0], first - second - sizes[1]).amax(-1)


@pytest.fixture(scope="module")
def long():
    """Places, velocities and boxes of 400 sequences over 200 steps at velocities up to 2."""
    data = BouncingMNIST(V2, "train", seed=3)
    chosen, start, velocity = data._draw(torch.arange(400), 0)
    extent = data._extent[chosen]
    # Small boxes too, which meet in all ways, corner to corner included.
    extent[200:] = extent[200:] // 4
    places, velocities = bounce(start, velocity, extent, ROOM, 201, STEPS)
    return start, velocity, places, velocities, extent


# By hand.


def test_clock():
    assert clock(torch.tensor([[0, 0]])) == [1]
    assert clock(Translation(radius=1).velocities) == [1, 1]
    assert clock(V2.velocities) == [3, 1, 2, 2, 1, 3]
    assert len(clock(Translation(radius=5).velocities)) == 32


def test_boxes_that_meet_at_a_frame():
    """3 columns apart, closing at 3 a frame: they touch at frame 1 and exchange velocities."""
    places, velocities = bounce(
        tensor((1, 2), (1, 8)), tensor((0, 2), (0, -1)), tensor((3, 3), (3, 3)), (5, 20), 3, STEPS
    )
    assert places[0, :, :, 1].tolist() == [[2, 8], [4, 7], [3, 9]]
    assert velocities[0, :, :, 1].tolist() == [[2, -1], [-1, 2], [-1, 2]]
    assert (places[0, :, :, 0] == 1).all()


def test_boxes_that_meet_between_frames():
    """2 apart, closing at 3: they touch after ⅔ of a frame, at 3⅓, and part for ⅓."""
    places, velocities = bounce(
        tensor((1, 2), (1, 7)), tensor((0, 2), (0, -1)), tensor((3, 3), (3, 3)), (5, 20), 3, STEPS
    )
    assert places[0, :, :, 1].tolist() == [[2, 7], [3, 7], [2, 9]]
    assert velocities[0, :, :, 1].tolist() == [[2, -1], [-1, 2], [-1, 2]]


def test_a_glancing_contact_exchanges_one_component_alone():
    """They touch along a column, so that the rows' components stay."""
    _, velocities = bounce(
        tensor((5, 2), (6, 8)), tensor((1, 2), (-1, -1)), tensor((4, 3), (4, 3)), (20, 20), 2, STEPS
    )
    assert velocities[0, 1].tolist() == [[1, -1], [-1, 2]]


def test_corner_to_corner():
    places, velocities = bounce(
        tensor((2, 2), (6, 6)), tensor((1, 1), (-1, -1)), tensor((3, 3), (3, 3)), (20, 20), 3, STEPS
    )
    assert velocities[0, 1].tolist() == [[-1, -1], [1, 1]]
    assert places[0, 1:].tolist() == [[[2, 2], [6, 6]], [[1, 1], [7, 7]]]


def test_boxes_that_slide_along_each_other_do_not_collide():
    """Edge on edge in rows, passing in columns."""
    _, velocities = bounce(
        tensor((2, 2), (5, 24)), tensor((0, 2), (0, -2)), tensor((3, 3), (3, 3)), (20, 40), 9, STEPS
    )
    assert (velocities == velocities[:, :1]).all()


def test_a_wall_between_frames():
    """One column before the wall at 2 a frame: half a frame there, half back."""
    places, velocities = bounce(
        tensor((0, 6), (9, 0)), tensor((0, 2), (-2, 0)), tensor((3, 3), (3, 3)), (12, 10), 3, STEPS
    )
    assert places[0, :, 0, 1].tolist() == [6, 6, 4]
    assert places[0, :, 1, 0].tolist() == [9, 7, 5]
    assert velocities[0, :, 0, 1].tolist() == [2, -2, -2]


def test_a_box_thrown_against_a_wall_pushes_the_other_again():
    """At rest at the wall, hit at speed 2: it turns at the wall at once and returns the push."""
    places, velocities = bounce(
        tensor((0, 0), (0, 3)), tensor((0, 0), (0, -2)), tensor((3, 3), (3, 3)), (5, 20), 3, STEPS
    )
    assert velocities[0, 0, :, 1].tolist() == [0, 2]
    assert places[0, :, :, 1].tolist() == [[0, 3], [0, 5], [0, 7]]


# In general.


def test_kinetic_energy_is_conserved(long):
    _, start, _, velocities, _ = long
    assert torch.equal(energy(velocities), energy(start)[:, None].expand(-1, 201))
    assert not torch.equal(velocities[:, 0], velocities[:, -1])


def test_momentum_is_conserved_between_digits():
    """In a room whose walls are out of reach."""
    torch.manual_seed(0)
    extent = torch.randint(3, 23, (500, 2, 2))
    start = torch.full((500, 2, 2), 500)
    start[:, 1, 1] += extent[:, 0, 1] + torch.randint(0, 20, (500,))
    start[:, :, 0] += torch.randint(-20, 20, (500, 2))
    velocity = V2.velocities[torch.randint(25, (500, 2))]
    _, velocities = bounce(start, velocity, extent, (1000, 1000), 30, STEPS)
    assert torch.equal(velocities.sum(2), velocity.sum(1)[:, None].expand(-1, 30, -1))
    assert torch.equal(energy(velocities), energy(velocity)[:, None].expand(-1, 30))
    assert int((velocities[:, 0] != velocities[:, -1]).flatten(1).any(1).sum()) > 50


def test_nothing_leaves_the_canvas(long):
    _, _, places, _, extent = long
    assert int(places.min()) == 0
    room = torch.tensor(ROOM)
    assert (places + extent[:, None] <= room).all()
    assert (places + extent[:, None] == room).any()


def test_boxes_never_overlap(long):
    _, _, places, _, extent = long
    apart = gap(places, extent)
    assert int(apart.min()) == 0


def test_no_tunnelling(long):
    """Boxes too tall to pass above each other stay on their sides, even at velocity 2."""
    _, _, places, _, extent = long
    tall = extent[:, :, 0].sum(1) > ROOM[0]
    assert int(tall.sum()) > 150
    side = (places[tall][:, :, 0, 1] < places[tall][:, :, 1, 1]).long()
    assert torch.equal(side, side[:, :1].expand(-1, 201))


def test_steps_are_velocities_where_nothing_is_hit(long):
    _, _, places, velocities, _ = long
    steady = (velocities[:, 1:] == velocities[:, :-1]).all(-1).all(-1)
    moved = places[:, 1:] - places[:, :-1]
    free = (moved == velocities[:, :-1]).all(-1).all(-1)
    # Two walls within one step, or two boxes, may give the velocity back: rare, never usual.
    assert float((steady & ~free).float().mean()) < 0.02
    assert int(moved.abs().max()) <= 2


def test_time_runs_backwards_too(long):
    _, _, places, velocities, extent = long
    back, _ = bounce(places[:, -1], -velocities[:, -1], extent, ROOM, 201, STEPS)
    # A contact exactly at the last frame has turned its velocities already.
    free = (places[:, -1] > 0) & (places[:, -1] + extent < torch.tensor(ROOM))
    free = free.flatten(1).all(1) & (gap(places[:, -1:], extent)[:, 0] > 0)
    assert int(free.sum()) > 50
    assert torch.equal(back[free], places[free].flip(1))


def by_events(start, velocity, extent, room, length):
    """The same in exact fractions, for one pair of boxes, from one event to the next."""
    x = [[Fraction(c) for c in box] for box in start]
    v = [list(box) for box in velocity]
    places = []

    def between(axis, at):
        """The gap along an axis after a time, and how fast it closes."""
        a, b = (x[k][axis] + v[k][axis] * at for k in (0, 1))
        if a + extent[0][axis] - b <= b + extent[1][axis] - a:
            return b - a - extent[0][axis], v[0][axis] - v[1][axis]
        return a - b - extent[1][axis], v[1][axis] - v[0][axis]

    for _ in range(length):
        places.append([list(box) for box in x])
        left = Fraction(1)
        while left > 0:
            events = [(left, lambda: None)]
            for k, axis in product((0, 1), repeat=2):
                speed = v[k][axis]
                ahead = room[axis] - extent[k][axis] - x[k][axis] if speed > 0 else x[k][axis]
                if speed:
                    events.append((ahead / abs(speed), partial(turn, v, k, axis)))
            for axis in (0, 1):
                gap, closing = between(axis, 0)
                if closing > 0 and gap >= 0:
                    other, other_closing = between(1 - axis, gap / closing)
                    if other < 0:
                        events.append((gap / closing, partial(exchange, v, [axis])))
                    elif other == 0 and other_closing > 0:
                        events.append((gap / closing, partial(exchange, v, [0, 1])))
            at, happens = min(events, key=lambda event: event[0])
            for k, axis in product((0, 1), repeat=2):
                x[k][axis] += v[k][axis] * at
            left -= at
            happens()
    return places


def turn(v, k, axis):
    v[k][axis] *= -1


def exchange(v, axes):
    for axis in axes:
        v[0][axis], v[1][axis] = v[1][axis], v[0][axis]


@st.composite
def boxes(draw):
    """Sizes and starts of two boxes in a room of 11 by 14, the first left of the second."""
    height, other_height = draw(st.integers(2, 8)), draw(st.integers(2, 8))
    width, other_width = draw(st.integers(2, 6)), draw(st.integers(2, 6))
    free = 14 - width - other_width
    left = draw(st.integers(0, free))
    right = draw(st.integers(left, free))
    rows = draw(st.integers(0, 11 - height)), draw(st.integers(0, 11 - other_height))
    start = [(rows[0], left), (rows[1], width + right)]
    return start, [(height, width), (other_height, other_width)]


@settings(max_examples=100, deadline=None)
@given(boxes(), st.tuples(*[st.integers(-3, 3)] * 4))
def test_against_exact_fractions(made, speeds):
    start, extent = made
    velocity = [speeds[:2], speeds[2:]]
    stops = clock(Translation(radius=3).velocities)
    places, _ = bounce(tensor(*start), tensor(*velocity), tensor(*extent), (11, 14), 25, stops)
    assert places[0].tolist() == by_events(start, velocity, extent, (11, 14), 25)


def test_every_contact_is_settled_at_once():
    """All places of two small boxes in a small room, all velocities: nothing still approaches."""
    velocity = torch.tensor(list(product(range(-2, 3), repeat=4))).reshape(-1, 2, 2)
    compared = 0
    for sizes in ((2, 2, 2, 2), (2, 2, 3, 2), (1, 2, 4, 2)):
        extent = torch.tensor(sizes).reshape(1, 2, 2)
        limit = torch.tensor([5, 5]) - extent
        places = [range(n + 1) for n in limit.flatten().tolist()]
        for place in torch.tensor(list(product(*places))).reshape(-1, 1, 2, 2):
            lines = torch.stack(
                [place[:, 1] - place[:, 0] - extent[:, 0], place[:, 0] - place[:, 1] - extent[:, 1]]
            )
            columns_apart = lines.amax(0)[0, 1] >= 0
            if not columns_apart:
                continue
            shape = velocity.shape
            after = _rebound(place.expand(shape), velocity, extent.expand(shape), limit)
            again = _rebound(place.expand(shape), after, extent.expand(shape), limit)
            assert torch.equal(after, again)
            assert not ((place == 0) & (after < 0)).any()
            assert not ((place == limit) & (after > 0)).any()
            assert torch.equal(energy(after), energy(velocity))
            compared += 1
    assert compared > 100
