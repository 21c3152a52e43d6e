"""Z² ⋊ C_N: rigid motions sample signals bilinearly, and permute the orientations of features."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fernn import _check
from fernn.groups._base import Group
from fernn.groups._lattice import Lattice, gather
from fernn.groups._steerable import rotated_basis


@dataclass(frozen=True)
class SE2(Group):
    """Z² ⋊ C_N acting on an image about its centre: (g·f)(x) = f(g⁻¹x), zero outside the image.

    An element is (degrees, rows, columns): turn counter-clockwise as displayed, then move. Turns
    by multiples of 90° on square images are exact to the bit; others interpolate bilinearly.

    `orientations` is N. Features are in the regular representation: the group both moves the plane
    and shifts the orientation axis. With N = 1 convolutions are ordinary ones.

    >>> SE2().act(torch.eye(2)[None], torch.tensor([[90.0, 0.0, 0.0]]))
    tensor([[[0., 1.],
             [1., 0.]]])
    """

    orientations: int = 1

    def __post_init__(self) -> None:
        _check.count("orientations", self.orientations, least=1)

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

    def act(self, x: Tensor, element: Tensor, *, features: bool = False) -> Tensor:
        _check.floating("x", x)
        if features and self.order > 1:
            x = self._permute(x, element)
        index, weight = _bilinear(element, x.shape[-2], x.shape[-1])
        taps = gather(x, index.flatten(-2), 2)
        taps = taps.reshape(*taps.shape[:-1], *index.shape[-2:])
        lead = element.ndim - 1
        weight = weight.reshape(*weight.shape[:-2], *(1,) * (x.ndim - 2 - lead), *weight.shape[-2:])
        moved = (taps * weight.to(x.dtype)).sum(-2)
        return moved.reshape(*moved.shape[:-1], *x.shape[-2:])

    def _permute(self, x: Tensor, element: Tensor) -> Tensor:
        """h(·, φ) → h(·, φ − θ) on the orientation axis that runs fastest in the channels."""
        steps = (element[..., :1] * (self.order / 360.0)).round().long()
        split = x.reshape(*x.shape[:-3], -1, self.order, *x.shape[-2:]).movedim(-3, -1)
        return Lattice(1).act(split, steps).movedim(-1, -3).flatten(-4, -3)

    def weight_shape(
        self, out_channels: int, in_channels: int, kernel_size: int, *, lifting: bool
    ) -> tuple[int, ...]:
        if self.order == 1:
            return (out_channels, in_channels, kernel_size, kernel_size)
        size = len(rotated_basis(kernel_size, self.order))
        return (
            (out_channels, in_channels, size)
            if lifting
            else (out_channels, in_channels, self.order, size)
        )

    def kernel(self, weight: Tensor, kernel_size: int, *, lifting: bool) -> Tensor:
        """U(R_θ⁻¹x) for lifting, W(θ'−θ, R_θ⁻¹x) between features; θ, θ' index output and input."""
        if self.order == 1:
            return weight
        basis = rotated_basis(kernel_size, self.order).to(weight)
        if lifting:
            return torch.einsum("oib,bryx->oriyx", weight, basis).flatten(0, 1)
        turn = torch.arange(self.order, device=weight.device)
        relative = (turn[None, :] - turn[:, None]) % self.order
        dense = torch.einsum("oirsb,bryx->orisyx", weight[:, :, relative], basis)
        return dense.flatten(2, 3).flatten(0, 1)


def _bilinear(element: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Four source pixels and weights for each target pixel: both [*S, 4, H·W]."""
    degrees, *move = element.double().unbind(-1)
    cos, sin = _cos_sin(degrees)
    rows, cols = torch.meshgrid(
        torch.arange(height, dtype=torch.double, device=element.device),
        torch.arange(width, dtype=torch.double, device=element.device),
        indexing="ij",
    )
    centre = ((height - 1) / 2, (width - 1) / 2)
    row = rows.flatten() - centre[0] - move[0][..., None]
    col = cols.flatten() - centre[1] - move[1][..., None]
    source_row = centre[0] + row * cos[..., None] + col * sin[..., None]
    source_col = centre[1] + col * cos[..., None] - row * sin[..., None]

    corner = torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], device=element.device)
    base_row, base_col = source_row.floor(), source_col.floor()
    tap_row = base_row[..., None, :] + corner[:, :1]
    tap_col = base_col[..., None, :] + corner[:, 1:]
    weight = (1 - (tap_row - source_row[..., None, :]).abs()) * (
        1 - (tap_col - source_col[..., None, :]).abs()
    )
    inside = (tap_row >= 0) & (tap_row < height) & (tap_col >= 0) & (tap_col < width)
    index = tap_row.clamp(0, height - 1).long() * width + tap_col.clamp(0, width - 1).long()
    return index, weight * inside


def _cos_sin(degrees: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of degrees, exactly 0 or ±1 at the quarter turns."""
    quarter = (degrees / 90.0).round()
    rest = (degrees - 90.0 * quarter) * (math.pi / 180.0)
    cos, sin = rest.cos(), rest.sin()
    quarter = quarter.long() % 4
    signs = torch.tensor([[1, 0], [0, 1], [-1, 0], [0, -1]], device=degrees.device)
    turn_cos, turn_sin = signs.to(cos)[quarter].unbind(-1)
    return cos * turn_cos - sin * turn_sin, sin * turn_cos + cos * turn_sin
