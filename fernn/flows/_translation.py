"""Translation of a cyclic canvas: exact, in one, two or three dimensions."""

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from fernn import _check
from fernn.flows._base import Flow, distinct, few, plain, rows
from fernn.groups import Lattice


class Translation(Flow):
    """ψ_t(ν)·f(x) = f(x − tν) on a torus. V is a lattice, a list, or the whole torus.

    Component i of a velocity moves along spatial axis i, in pixels a frame: on an image (1, −2)
    is one row down and two columns to the left.

    >>> flow = Translation(radius=2)
    >>> len(flow), flow
    (25, Translation(radius=2))
    >>> Translation(velocities=[(0, -3), (0, 0), (0, 3)]).relative((0, 3))
    tensor([-1,  0,  1])
    >>> Translation(closed=(5, 5)).relative((4, 4)).min().item()
    0
    """

    def __init__(
        self,
        radius: int | None = None,
        *,
        velocities: Sequence[int | Sequence[int]] | None = None,
        closed: Sequence[int] | None = None,
        dim: int | None = None,
    ) -> None:
        if (radius is not None) + (velocities is not None) + (closed is not None) != 1:
            raise ValueError(
                "Translation takes exactly one of `radius` (all |ν| ≤ radius), `velocities` "
                f"(a list) and `closed` (a canvas), got radius={radius!r}, "
                f"velocities={velocities!r}, closed={closed!r}."
            )
        self._radius: int | None = None
        self._closed: tuple[int, ...] | None = None
        table: tuple[tuple[int, ...], ...]
        if isinstance(radius, Sequence):
            raise ValueError(
                f"`radius` must be a non-negative integer, got {radius!r}. "
                f"For a list of velocities write Translation(velocities={radius!r})."
            )
        if radius is not None:
            self._radius = _check.count("radius", radius, least=0)
            self._group = Lattice(2 if dim is None else dim)
            steps = range(-self._radius, self._radius + 1)
            few("radius", len(steps) ** self._group.dim)
            table = tuple(itertools.product(steps, repeat=self._group.dim))
        elif velocities is not None:
            table = _integers(velocities)
            self._group = Lattice(len(table[0]))
        else:
            self._closed = tuple(_check.count("closed", size, least=1) for size in _listed(closed))
            if len(self._closed) not in (1, 2, 3):
                raise ValueError(f"`closed` must be a canvas of 1, 2 or 3 axes, got {closed!r}.")
            self._group = Lattice(len(self._closed))
            few("closed", math.prod(self._closed))
            table = tuple(itertools.product(*map(range, self._closed)))
        super().__init__(table)
        if dim not in (None, self._group.dim):
            raise ValueError(
                f"`dim` must agree with the {self._group.dim} components given, got {dim!r}. "
                "Leave it out: only `radius` needs it."
            )

    @property
    def closed(self) -> tuple[int, ...] | None:
        """The canvas that V is all velocities of, None where V is truncated."""
        return self._closed

    @property
    def group(self) -> Lattice:
        return self._group

    def permutes(self, velocities: Sequence[Sequence[float]]) -> bool:
        return True

    def exp(self, velocity: Tensor, time: Tensor) -> Tensor:
        return velocity.long() * _whole("time", time)[..., None]

    def subtract(self, a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
        difference = (x - y for x, y in zip(a, b, strict=True))
        if self._closed is None:
            return tuple(difference)
        return tuple(d % size for d, size in zip(difference, self._closed, strict=True))

    def config(self) -> dict[str, object]:
        if self._closed is not None:
            return {"closed": self._closed}
        if self._radius is None:
            return {"velocities": self._velocities}
        made: dict[str, object] = {"radius": self._radius}
        return made | ({} if self._group.dim == 2 else {"dim": self._group.dim})

    def _key(self) -> tuple[object, ...]:
        return (*super()._key(), self._closed)

    def check_velocity(self, velocity: Tensor) -> None:
        _whole("velocity", velocity)

    def check_canvas(self, x: Tensor) -> None:
        dim = self._group.dim
        if x.ndim < dim:
            raise ValueError(f"`x` must have at least {dim} axes, got shape {tuple(x.shape)}.")
        if self._closed is not None and tuple(x.shape[-dim:]) != self._closed:
            raise ValueError(
                f"`x` must have the canvas {self._closed} that the flow closes on, got "
                f"{tuple(x.shape[-dim:])}. Use Translation(closed={tuple(x.shape[-dim:])})."
            )

    def check_features(self, velocities: Sequence[Sequence[float]]) -> None:
        """Every translation does."""

    def check_convolution(self, padding: str) -> None:
        if padding != "circular":
            raise ValueError(
                f"`padding` must be 'circular' in the lab frame, got {padding!r}: a convolution "
                "that pads with zeros does not commute with a cyclic translation. Use "
                'padding="circular", or frame="comoving", which asks nothing of the convolution.'
            )


def _integers(velocities: Sequence[int | Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """A list of velocities as integer tuples of one length; a bare number is a 1-D velocity."""
    given = rows("velocities", velocities)
    for row in given:
        if len(row) not in (1, 2, 3) or len(row) != len(given[0]):
            raise ValueError(
                f"`velocities` must all have the same 1, 2 or 3 components, got {row} "
                f"beside {given[0]}."
            )
        if any(component != int(component) for component in row):
            raise ValueError(
                f"`velocities` must be whole pixels a frame for an exact translation, got {row}. "
                "Use RigidMotion for motion that interpolates."
            )
    whole = tuple(tuple(int(component) for component in row) for row in given)
    distinct("velocities", whole)
    return whole


def _listed(values: Any) -> list[Any]:
    """A list, also from an array or a tensor, and from a single number."""
    values = plain(values)
    return list(values) if isinstance(values, Iterable) else [values]


def _whole(name: str, value: Tensor) -> Tensor:
    """`value` as int64, or an error where it is not whole."""
    if not value.is_floating_point() and not value.is_complex():
        return value.long()
    if value.is_complex() or not bool(value.isfinite().all()):
        raise ValueError(f"`{name}` must be finite and real, got {value.tolist()}.")
    if not torch.equal(value, value.round()):
        raise ValueError(
            f"`{name}` must be whole for an exact translation, got {value.tolist()}. "
            "Use RigidMotion for motion that interpolates."
        )
    return value.long()
