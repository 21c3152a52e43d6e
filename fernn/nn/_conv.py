"""The flow convolution: a kernel over velocity differences as well as over space."""

import torch
from torch import Tensor, nn

from fernn import _check
from fernn._constant import Constant
from fernn.flows import Flow, Translation
from fernn.groups import PADDINGS, convolve


class FlowConv(nn.Module):
    """[h ⋆ W](ν, g) = Σ_{γ∈V} Σ_m Σ_k h_k(γ, m) W_k(γ − ν, g⁻¹m): velocities mix.

    `radius` bounds |γ − ν| in every component; None is the full kernel. On a truncated V the sum
    stops at its edge, which leaks; on a closed V it is a convolution on a torus, and exact.

    Shapes: h [B, V, C, *X] → [B, V, K, *X].

    >>> flow = Translation(radius=2)
    >>> [FlowConv(8, 8, flow=flow, radius=r).weight.shape[2] for r in (None, 1)]
    [81, 9]
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        flow: Flow,
        radius: int | None = None,
        kernel_size: int = 3,
        padding: str = "circular",
    ) -> None:
        super().__init__()
        if not isinstance(flow, Translation) or flow.group.dim > 2:
            raise ValueError(
                "`flow` must be a Translation in one or two dimensions to mix velocities, "
                f"got {flow!r}."
            )
        _check.count("in_channels", in_channels, least=1)
        _check.count("out_channels", out_channels, least=1)
        _check.odd("kernel_size", kernel_size)
        _check.choice("padding", padding, PADDINGS)
        if radius is not None:
            _check.count("radius", radius, least=0)
        self.flow, self.radius, self.padding = flow, radius, padding
        with torch.device("cpu"):  # real indices, also where the weights are not
            pairs, differences = _pairs(flow, radius)
            neighbours = _neighbours(pairs, differences)
        self._pairs, self._neighbours = Constant(pairs), Constant(neighbours)
        self.weight = nn.Parameter(
            torch.empty(out_channels, in_channels, differences, *(kernel_size,) * flow.group.dim)
        )
        self._reach = int((pairs >= 0).sum(1).max())
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/√fan-in, counted at a velocity with the most neighbours."""
        fan_in = self.weight[0, :, 0].numel() * self._reach
        nn.init.uniform_(self.weight, -(fan_in**-0.5), fan_in**-0.5)

    def kernel(self) -> Tensor:
        """The dense kernel of the cheaper of two plans, expanded once for a whole sequence.

        Either all velocities are channels of one convolution and the kernel holds a block for every
        pair (ν, γ), or each ν gathers its neighbours and the kernel is shared. The first costs |V|²
        products and the second |V| times the number of differences.
        """
        if self._dense:
            padded = torch.cat([self.weight, torch.zeros_like(self.weight[:, :, :1])], 2)
            blocks = padded[
                :, :, self._pairs.on(padded.device)
            ]  # [K, C, ν, γ, *k]; −1 reads the zero block
            return blocks.movedim(2, 0).movedim(3, 2).flatten(2, 3).flatten(0, 1)
        return self.weight.movedim(2, 1).flatten(1, 2)

    @property
    def _dense(self) -> bool:
        return len(self.flow) <= self.weight.shape[2]

    def convolve(self, h: Tensor, kernel: Tensor) -> Tensor:
        """h ⋆ W with a kernel that `kernel()` made."""
        batch, velocities = h.shape[:2]
        if self._dense:
            out = convolve(h.flatten(1, 2), kernel, self.padding)
        else:
            padded = torch.cat([h, torch.zeros_like(h[:, :1])], 1)
            near = padded[:, self._neighbours.on(h.device)]  # [B, V, M, C, *X]
            out = convolve(near.flatten(2, 3).flatten(0, 1), kernel, self.padding)
        return out.reshape(batch, velocities, -1, *h.shape[3:])

    def forward(self, h: Tensor) -> Tensor:
        dim = self.flow.group.dim
        layout = _check.layout("B, V, C", dim)
        _check.signal("h", h, rank=3 + dim, layout=layout, channels=self.weight.shape[1])
        if h.shape[1] != len(self.flow):
            raise ValueError(
                f"`h` must be lifted to the {len(self.flow)} velocities of {self.flow!r}, "
                f"got {h.shape[1]} in shape {tuple(h.shape)}."
            )
        _check.same_place("h", h, self.weight)
        return self.convolve(h, self.kernel())

    def extra_repr(self) -> str:
        out_channels, in_channels = self.weight.shape[:2]
        return f"{in_channels}, {out_channels}, flow={self.flow!r}, radius={self.radius!r}"


def _pairs(flow: Translation, radius: int | None) -> tuple[Tensor, int]:
    """The index of γ − ν among the kernel's differences for every pair, −1 beyond it: [V, V]."""
    difference = flow.velocities[None, :] - flow.velocities[:, None]
    if flow.closed is not None:
        size = torch.tensor(flow.closed)
        difference = (difference + size // 2) % size - size // 2  # the representative nearest zero
    reach = difference.abs().amax((0, 1)) if radius is None else torch.tensor(radius)
    inside = (difference.abs() <= reach).all(-1)
    kept, index = torch.unique(difference[inside], dim=0, return_inverse=True)
    pairs = torch.full(difference.shape[:2], -1)
    pairs[inside] = index
    return pairs, len(kept)


def _neighbours(pairs: Tensor, differences: int) -> Tensor:
    """Which γ lies at each difference from ν, V where none does: [V, M]."""
    neighbours = torch.full((len(pairs), differences), len(pairs))
    row, column = (pairs >= 0).nonzero(as_tuple=True)
    neighbours[row, pairs[row, column]] = column
    return neighbours
