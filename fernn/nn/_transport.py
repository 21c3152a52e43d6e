"""A learned stand-in for the flow: the ablation that the paper calls G-RNN+."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fernn import _check
from fernn.flows import Flow


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
        batch, velocities, channels = h.shape[:3]
        halo = self.kernel_size // 2
        slices = h.transpose(1, 2).flatten(0, 1)  # [B·K, V, H, W]: velocities are the groups
        out = F.conv2d(F.pad(slices, (halo,) * 4, mode="circular"), self.weight, groups=velocities)
        return out.reshape(batch, channels, velocities, *h.shape[3:]).transpose(1, 2)
