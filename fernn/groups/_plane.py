"""Z² ⋊ C_N: rigid motions sample signals bilinearly, and permute the orientations of features."""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fernn import _check
from fernn.groups._base import Group
from fernn.groups._lattice import Lattice, gather
from fernn.groups._steerable import basis_on, basis_size


@dataclass(frozen=True)
class SE2(Group):
    """Z² ⋊ C_N acting on an image about its centre: (g·f)(x) = f(g⁻¹x), zero outside the image.

    An element is (degrees, rows, columns): turn counter-clockwise as displayed, then move. Turns
    by multiples of 90° on square images are exact to the bit; others interpolate bilinearly.

    `orientations` is N. Features are in the regular representation: the group both moves the plane
    and shifts the orientation axis, by the nearest whole step: a flow refuses the other turns, and
    `turns` tells them here. With N = 1 convolutions are ordinary ones.

    >>> SE2().act(torch.eye(2)[None], torch.tensor([[90.0, 0.0, 0.0]]))
    tensor([[[0., 1.],
             [1., 0.]]])
    """

    orientations: int = 1

    def __post_init__(self) -> None:
        whole = _check.count("orientations", self.orientations, least=1)
        object.__setattr__(self, "orientations", whole)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copied or unpickled by its arguments, which are checked again."""
        self.__dict__.update(type(self)(**state).__dict__)

    @property
    def dim(self) -> int:
        return 2

    @property
    def order(self) -> int:
        return self.orientations

    def turns(self, degrees: float) -> bool:
        """Whether a turn by `degrees` is one of the N orientations."""
        steps = degrees * self.orientations / 360.0
        return abs(steps - round(steps)) < 1e-9

    def rigid(self, element: Tensor) -> Tensor:
        """Elements [..., 3] as (cosine, sine, rows, columns), exact at quarter turns: float64."""
        degrees, *move = element.double().unbind(-1)
        return torch.stack([*_cos_sin(degrees), *move], -1)

    def act(self, x: Tensor, element: Tensor, *, features: bool = False) -> Tensor:
        _check.floating("x", x)
        _check.components("element", element, 3, self)
        if features and self.order > 1:
            x = self._permute(x, element)
        height, width = x.shape[-2:]
        row, column = _source(element, height, width)
        # A border of zeros is what lies outside; points beyond it are read from it.
        row, down = _whole_and_part(row, height)
        column, right = _whole_and_part(column, width)
        index = row * (width + 2) + column
        padded = F.pad(x, (1, 1, 1, 1))
        middle = (1,) * (x.ndim - 2 - (element.ndim - 1))
        down = down.reshape(*down.shape[:-1], *middle, -1).to(x.dtype)
        right = right.reshape(*right.shape[:-1], *middle, -1).to(x.dtype)
        above = torch.lerp(gather(padded, index, 2), gather(padded, index + 1, 2), right)
        index = index + (width + 2)
        below = torch.lerp(gather(padded, index, 2), gather(padded, index + 1, 2), right)
        moved = torch.lerp(above, below, down)
        return moved.reshape(*moved.shape[:-1], height, width)

    def _permute(self, x: Tensor, element: Tensor) -> Tensor:
        """h(·, φ) → h(·, φ − θ) on the orientation axis that runs fastest in the channels."""
        if x.ndim < 3 or x.shape[-3] % self.order:
            raise ValueError(
                f"`x` must have a multiple of {self.order} channels, the orientations of {self}, "
                f"before its canvas, got shape {tuple(x.shape)}."
            )
        steps = (element[..., :1] * (self.order / 360.0)).round().long()
        split = x.reshape(*x.shape[:-3], -1, self.order, *x.shape[-2:]).movedim(-3, -1)
        return Lattice(1).act(split, steps).movedim(-1, -3).flatten(-4, -3)

    def weight_shape(
        self, out_channels: int, in_channels: int, kernel_size: int, *, lifting: bool
    ) -> tuple[int, ...]:
        if self.order == 1:
            return (out_channels, in_channels, kernel_size, kernel_size)
        size = basis_size(kernel_size)
        return (
            (out_channels, in_channels, size)
            if lifting
            else (out_channels, in_channels, self.order, size)
        )

    def kernel(self, weight: Tensor, kernel_size: int, *, lifting: bool) -> Tensor:
        """U(R_θ⁻¹x) for lifting, W(θ'−θ, R_θ⁻¹x) between features; θ, θ' index output and input."""
        if self.order == 1:
            return weight
        basis = basis_on(kernel_size, self.order, weight.device).to(weight)
        if lifting:
            return torch.einsum("oib,bryx->oriyx", weight, basis).flatten(0, 1)
        turn = torch.arange(self.order, device=weight.device)
        relative = (turn[None, :] - turn[:, None]) % self.order
        dense = torch.einsum("oirsb,bryx->orisyx", weight[:, :, relative], basis)
        return dense.flatten(2, 3).flatten(0, 1)


def _source(element: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Where each target pixel is read from, g⁻¹x, in rows and columns: both [*S, H·W]."""
    degrees, *move = element.double().unbind(-1)
    cos, sin = (value[..., None] for value in _cos_sin(degrees))
    rows = torch.arange(height, dtype=torch.double, device=element.device)
    columns = torch.arange(width, dtype=torch.double, device=element.device)
    middle_row, middle_column = (height - 1) / 2, (width - 1) / 2
    row = rows.repeat_interleave(width) - middle_row - move[0][..., None]
    column = columns.repeat(height) - middle_column - move[1][..., None]
    return middle_row + row * cos + column * sin, middle_column + column * cos - row * sin


def _whole_and_part(place: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The index of the pixel before `place` on an axis with a border of one, and what is left."""
    place = place.clamp(-1, size)
    before = place.floor().clamp(max=size - 1)
    return before.long() + 1, place - before


def _cos_sin(degrees: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of degrees, exactly 0 or ±1 at the quarter turns."""
    quarter = (degrees / 90.0).round()
    rest = (degrees - 90.0 * quarter) * (math.pi / 180.0)
    cos, sin = rest.cos(), rest.sin()
    quarter = quarter.long() % 4
    turn_cos = (quarter == 0).to(cos) - (quarter == 2).to(cos)
    turn_sin = (quarter == 1).to(cos) - (quarter == 3).to(cos)
    return cos * turn_cos - sin * turn_sin, sin * turn_cos + cos * turn_sin
