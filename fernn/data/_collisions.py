"""Elastic collisions of two boxes of equal mass in a room, exact in whole numbers.

Two edges that move as c + v·t and c' + v'·t with whole c and v meet at a multiple of 1/|v − v'|.
So time stops at every fraction of a frame that such a meeting can fall on, and at no other. A wall
turns a component of velocity round; two boxes exchange the components across the line in which
they touch. Both replace the path of an edge by another one with whole c and v, so meetings keep
falling on those fractions and frames on whole pixels: boxes touch and never overlap, whatever
their speed.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import torch
from torch import Tensor


def clock(velocities: Tensor) -> list[int]:
    """How long to move between one possible meeting and the next, in equal parts of a frame.

    V is [V, d]. Collisions change the signs of components, so edges approach each other with sums
    and differences of those in V. The durations add up to one frame.

    >>> clock(torch.tensor([[-2, 0], [1, 1]]))  # at ¼, ⅓, ½, ⅔, ¾ and 1, in twelfths
    [3, 1, 2, 2, 1, 3]
    """
    speeds = {int(speed) for speed in velocities.abs().flatten().tolist()}
    meetings = {abs(a + s * b) for a in speeds for b in speeds | {0} for s in (1, -1)} - {0} | {1}
    stops = sorted({Fraction(k, meeting) for meeting in meetings for k in range(meeting + 1)})
    parts = math.lcm(*meetings)
    return [int((later - sooner) * parts) for sooner, later in pairwise(stops)]


def bounce(
    place: Tensor,
    velocity: Tensor,
    extent: Tensor,
    room: tuple[int, int],
    length: int,
    durations: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """Places and velocities of two boxes for `length` frames, the first where they start.

    Shapes: place, velocity and extent (rows and columns) int64 [B, 2, 2], box by axis; the result
    is twice [B, T, 2, 2]. Boxes must start inside the room, in columns apart, and the room must
    have a column to spare.
    """
    parts = sum(durations)
    extent = extent * parts
    limit = torch.tensor(room) * parts - extent
    place = place * parts
    velocity = _rebound(place, velocity, extent, limit)
    places, velocities = [place], [velocity]
    for _ in range(length - 1):
        for duration in durations:
            place = place + velocity * duration
            velocity = _rebound(place, velocity, extent, limit)
        places.append(place)
        velocities.append(velocity)
    return torch.stack(places, 1) // parts, torch.stack(velocities, 1)


def _rebound(place: Tensor, velocity: Tensor, extent: Tensor, limit: Tensor) -> Tensor:
    """The velocities after all contacts of this moment."""
    low, high = place == 0, place == limit
    ahead = place[:, 1] - place[:, 0] - extent[:, 0]  # the gap if box 1 is below or to the right
    behind = place[:, 0] - place[:, 1] - extent[:, 1]
    gap = torch.maximum(ahead, behind)
    side = torch.where(ahead >= behind, 1, -1)
    touching = (gap == 0) & (gap.amax(-1, keepdim=True) == 0)
    # A box thrown against a wall may push the other once more, and be thrown back: three rounds
    # settle every contact of two boxes in a room with space to spare.
    for _ in range(3):
        before = velocity
        velocity = torch.where(low, velocity.abs(), velocity)
        velocity = torch.where(high, -velocity.abs(), velocity)
        closing = (velocity[:, 0] - velocity[:, 1]) * side > 0
        # Side to side, what approaches; corner to corner, only what approaches in both directions.
        meets = touching & closing & ((gap < 0) | closing).all(-1, keepdim=True)
        velocity = torch.where(meets[:, None], velocity.flip(1), velocity)
        if torch.equal(velocity, before):
            break
    return velocity
