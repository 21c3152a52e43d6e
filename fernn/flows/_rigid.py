"""Rotation about the image centre, and rigid motion: bilinear, exact at quarter turns."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fernn import _check
from fernn.flows._base import Flow, distinct, few, rows
from fernn.groups import SE2


class _PlaneFlow(Flow):
    """What rotations and rigid motions share: they act through SE(2)."""

    _group: SE2

    @property
    def group(self) -> SE2:
        return self._group

    def permutes(self, velocities: Sequence[Sequence[float]]) -> bool:
        return all(v[0] % 90 == 0 and not any(v[1:]) for v in velocities)

    def _places(self, velocities: Sequence[tuple[float, ...]], near: float) -> list[int]:
        wanted, known = (
            torch.tensor(v, dtype=torch.float64, device="cpu")
            for v in (velocities, self._velocities)
        )
        gap, index = self._apart(wanted[:, None], known).min(1)
        return torch.where(gap <= near, index, -1).tolist()

    def _apart(self, a: Tensor, b: Tensor) -> Tensor:
        """How far velocities [*S, d] lie apart: [*S]."""
        return (a - b).abs().amax(-1)

    def check_velocity(self, velocity: Tensor) -> None:
        if velocity.is_complex() or not bool(velocity.isfinite().all()):
            raise ValueError(f"`velocity` must be finite and real, got {velocity.tolist()}.")

    def check_canvas(self, x: Tensor) -> None:
        if x.ndim < 2:
            raise ValueError(f"`x` must have at least 2 axes, got shape {tuple(x.shape)}.")
        quarter = self.exact and any(v[0] % 180 == 90 for v in self._velocities)
        if quarter and x.shape[-1] != x.shape[-2]:
            raise ValueError(
                f"`x` must be square for {self!r}, got {x.shape[-2]}×{x.shape[-1]}: a quarter "
                "turn maps the grid to itself on a square alone. Pad the image to a square."
            )

    def check_features(self, velocities: Sequence[Sequence[float]]) -> None:
        for velocity in velocities:
            if not self._group.turns(velocity[0]):
                raise ValueError(
                    f"`velocity` must turn by multiples of {360 / self._group.order:g}° to permute "
                    f"the orientations of {self._group}, got {velocity[0]:g}°. "
                    f"Give the flow group=SE2(N), N a multiple of {_orientations(velocities)}."
                )

    def check_convolution(self, padding: str) -> None:
        if padding == "circular" and not self.exact:
            raise ValueError(
                '`padding` must be "zeros" in the lab frame, got "circular": the flow moves zeros '
                "in from outside the image, so a convolution that wraps does not commute with it. "
                'Use padding="zeros", or frame="comoving".'
            )
        for velocity in self._velocities:
            if not self._group.turns(velocity[0]):
                raise ValueError(
                    f"`flow` must turn by multiples of {360 / self._group.order:g}° in the lab "
                    f"frame, got a velocity of {velocity[0]:g}°: "
                    f"{'an ordinary convolution' if self._group.order == 1 else self._group} does "
                    'not commute with that turn. Use frame="comoving", which asks nothing of the '
                    "convolution, or a flow with orientations, group=SE2(N), N a multiple of "
                    f"{_orientations(self._velocities)}."
                )


class Rotation(_PlaneFlow):
    """ψ_t(ν): turn about the image centre by t·ν degrees, counter-clockwise as displayed.

    V^R_N is `Rotation(count=N)`, the velocities −N·10° … N·10° a frame, and `degrees` is that step
    of 10. At whole times velocities count modulo 360°, so `Rotation(velocities=[0, 90, 180, 270])`
    is closed.
    `group=SE2(36)` gives features an orientation axis; the default SE2(1) means ordinary
    convolutions.

    >>> Rotation(count=4).velocities.flatten().tolist()
    [-40.0, -30.0, -20.0, -10.0, 0.0, 10.0, 20.0, 30.0, 40.0]
    """

    def __init__(
        self,
        count: int | None = None,
        *,
        degrees: float | None = None,
        velocities: Sequence[float] | None = None,
        group: SE2 | None = None,
    ) -> None:
        if (count is None) == (velocities is None):
            raise ValueError(
                "Rotation takes exactly one of `count` (multiples of `degrees` up to ±count) and "
                f"`velocities` (a list), got count={count!r}, velocities={velocities!r}."
            )
        if velocities is not None and degrees is not None:
            raise ValueError(
                f"`degrees` must not be given with `velocities`, got {degrees!r}: it is the step "
                "between the velocities that `count` makes."
            )
        self._group = _plane(group)
        self._count, self._degrees = count, 10.0 if degrees is None else float(degrees)
        _check.finite("degrees", [(self._degrees,)])
        if self._degrees == 0:
            raise ValueError("`degrees` must not be 0: it is the step between velocities.")
        if count is not None:
            self._count = count = _check.count("count", count, least=0)
            few("count", 2 * count + 1)
            angles = [k * self._degrees for k in range(-count, count + 1)]
            if len({round(a % 360.0, 9) for a in angles}) < len(angles):
                raise ValueError(
                    "`count` must keep the velocities apart, of which two are the same turn here, "
                    f"got {count} steps of {self._degrees:g}° either way. Stay below 180°."
                )
        else:
            given = rows("velocities", velocities)
            for row in given:
                if len(row) != 1:
                    raise ValueError(f"`velocities` must be degrees, one number each, got {row}.")
            angles = [float(degrees) for (degrees,) in given]
        _check.finite("velocities", [angles])
        distinct("velocities", [(a % 360.0,) for a in angles])
        super().__init__(tuple((a,) for a in angles))

    def exp(self, velocity: Tensor, time: Tensor) -> Tensor:
        degrees = velocity.double()[..., 0] * time
        return torch.stack([degrees, torch.zeros_like(degrees), torch.zeros_like(degrees)], -1)

    def subtract(self, a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
        """The representative of a − b modulo 360° nearest zero."""
        return ((a[0] - b[0] + 180.0) % 360.0 - 180.0,)

    def _apart(self, a: Tensor, b: Tensor) -> Tensor:
        return ((a - b + 180.0) % 360.0 - 180.0).abs().amax(-1)

    def config(self) -> dict[str, object]:
        if self._count is not None:
            made: dict[str, object] = {"count": self._count, "degrees": self._degrees}
        else:
            made = {"velocities": [v[0] for v in self._velocities]}
        return made | ({} if self._group == SE2() else {"group": self._group})


class RigidMotion(_PlaneFlow):
    """ψ_t(ν) = exp(tν) in SE(2): turning while moving, about one common centre.

    A velocity is (degrees, rows, columns) a frame, in the algebra se(2): a turn about a point at
    distance is a rotation part with a translation part. Motions leave the image; they are not
    cyclic. Velocities that do not commute are refused, because no shift of V then undoes the flow.

    >>> RigidMotion([(0, 0, 0), (0, 0.5, 0), (0, 0, 0.5)]).exact
    False
    """

    def __init__(self, velocities: Sequence[Sequence[float]], *, group: SE2 | None = None) -> None:
        table = [tuple(map(float, row)) for row in rows("velocities", velocities)]
        for row in table:
            if len(row) != 3:
                raise ValueError(
                    f"`velocities` must be (degrees, rows, columns) triples, got {row}."
                )
        distinct("velocities", table)
        a = max(table, key=lambda row: abs(row[0]))  # what commutes with a turn has its centre
        for b in table:
            bracket = math.hypot(a[0] * b[1] - b[0] * a[1], a[0] * b[2] - b[0] * a[2])
            if bracket > 1e-9 * math.hypot(*a) * math.hypot(*b):
                raise ValueError(
                    f"`velocities` must commute pairwise, got {a} and {b}, whose bracket is not "
                    "zero: turns about different centres, or a turn and a translation. Use one "
                    "centre of rotation for all, or translations alone."
                )
        self._group = _plane(group)
        super().__init__(tuple(table))

    def exp(self, velocity: Tensor, time: Tensor) -> Tensor:
        """The closed form exp(ω, v) = (ω, V(ω)v), with V(ω) = ∫₀¹ R(sω) ds."""
        degrees, rows, columns = (velocity.double() * time[..., None]).unbind(-1)
        angle = degrees * (math.pi / 180.0)
        straight = torch.sinc(angle / math.pi)
        bend = torch.sinc(angle / (2 * math.pi)) * (angle / 2).sin()
        return torch.stack(
            [degrees, rows * straight - columns * bend, columns * straight + rows * bend], -1
        )

    def subtract(self, a: Sequence[float], b: Sequence[float]) -> tuple[float, ...]:
        return tuple(x - y for x, y in zip(a, b, strict=True))

    def config(self) -> dict[str, object]:
        made: dict[str, object] = {"velocities": self._velocities}
        return made | ({} if self._group == SE2() else {"group": self._group})


def _plane(group: SE2 | None) -> SE2:
    """`group`, or ordinary convolutions where none is given."""
    if group is not None:
        _check.kind("group", group, SE2, "SE2(36)")
    return SE2() if group is None else group


def _orientations(velocities: Sequence[Sequence[float]]) -> int | str:
    """The smallest N ≤ 360 for which every velocity is a multiple of 360°/N."""
    for order in range(1, 361):
        if all(SE2(order).turns(v[0]) for v in velocities):
            return order
    return "360° over their common divisor"
