"""A learned stand-in for the flow: the ablation that the paper calls G-RNN+."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn import _check
from fernn._constant import Constant
from fernn.flows import Flow

MOST_PIXELS = 1024
"""Up to here a GPU multiplies with κ_ν as a matrix of pixels by pixels: its matrix units do that
sooner than its other ones convolve channel by channel."""


class LearnedTransport(nn.Module):
    """h(ν) ← κ_ν ⋆ h(ν): one scalar kernel a velocity, shared by all channels.

    A 5×5 kernel can represent the roll of every ν in V^T_2, but has to learn it.
    Shapes: [B, V, K, H, W] → the same.
    """

    def __init__(self, flow: Flow, kernel_size: int = 5) -> None:
        super().__init__()
        if flow.group.dim != 2:
            raise ValueError(f"`flow` must act on images, got {flow!r}.")
        self.flow = flow
        self.kernel_size = _check.odd("kernel_size", kernel_size)
        self.weight = nn.Parameter(torch.empty(len(flow), 1, kernel_size, kernel_size))
        nn.init.uniform_(self.weight, -1 / kernel_size, 1 / kernel_size)

    def forward(self, h: Tensor) -> Tensor:
        if h.ndim != 5 or h.shape[1] != len(self.flow):
            raise ValueError(
                f"`h` must be lifted, [B, V, K, H, W] with V = {len(self.flow)}, "
                f"got shape {tuple(h.shape)}."
            )
        pixels = h.shape[3] * h.shape[4]
        return self._product(h) if h.is_cuda and pixels <= MOST_PIXELS else self._convolution(h)

    def _convolution(self, h: Tensor) -> Tensor:
        batch, velocities, channels = h.shape[:3]
        halo = self.kernel_size // 2
        slices = h.transpose(1, 2).flatten(0, 1)  # [B·K, V, H, W]: velocities are the groups
        out = F.conv2d(F.pad(slices, (halo,) * 4, mode="circular"), self.weight, groups=velocities)
        return out.reshape(batch, channels, velocities, *h.shape[3:]).transpose(1, 2)

    def _product(self, h: Tensor) -> Tensor:
        batch, velocities, channels, height, width = h.shape
        pixels = height * width
        entries = _entries(self.kernel_size, height, width).on(h.device)
        weights = self.weight.reshape(velocities, -1, 1).expand(-1, -1, pixels).flatten(1)
        matrix = weights.new_zeros(velocities, pixels * pixels)
        matrix = matrix.scatter_add(1, entries.expand(velocities, -1), weights)
        slices = h.transpose(0, 1).reshape(velocities, batch * channels, pixels)
        out = slices @ matrix.reshape(velocities, pixels, pixels)
        return out.reshape(velocities, batch, channels, height, width).transpose(0, 1)


@cache
def _entries(size: int, height: int, width: int) -> Constant:
    """Where the weight of each tap stands, for each pixel it makes, in a matrix [from, to]."""
    rows, columns = torch.arange(height), torch.arange(width)
    offsets = torch.arange(size) - size // 2
    from_row = (rows + offsets[:, None]) % height  # [tap, H]
    from_column = (columns + offsets[:, None]) % width
    source = from_row[:, None, :, None] * width + from_column[None, :, None, :]
    target = rows[:, None] * width + columns
    return Constant((source * height * width + target).flatten())
