"""A learned stand-in for the flow: the ablation that the paper calls G-RNN+."""

import torch
from torch import Tensor, nn

from fernn import _check
from fernn.flows import Flow
from fernn.ops.slice_conv import slice_conv


class LearnedTransport(nn.Module):
    """h(ν) ← κ_ν ⋆ h(ν): one scalar kernel a velocity, shared by all channels.

    A 5×5 kernel can represent the roll of every ν in V^T_2, but has to learn it. On a torus it
    commutes with W, so a recurrence applies it first: κ_ν ⋆ (W ⋆ h) = W ⋆ (κ_ν ⋆ h).
    Shapes: [B, V, K, H, W] → the same. `backend` is that of `fernn.ops.flow_step`.
    """

    def __init__(self, flow: Flow, kernel_size: int = 5) -> None:
        super().__init__()
        _check.kind("flow", flow, Flow, "Translation(radius=2)")
        if flow.group.dim != 2:
            raise ValueError(f"`flow` must act on images, got {flow!r}.")
        self.flow = flow
        self.kernel_size = _check.odd("kernel_size", kernel_size)
        self.weight = nn.Parameter(torch.empty(len(flow), 1, kernel_size, kernel_size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Uniform in ±1/√fan-in."""
        nn.init.uniform_(self.weight, -1 / self.kernel_size, 1 / self.kernel_size)

    def forward(self, h: Tensor, backend: str = "auto") -> Tensor:
        _check.floating("h", h)
        if h.ndim != 5 or h.shape[1] != len(self.flow):
            raise ValueError(
                f"`h` must be lifted, [B, V, K, H, W] with V = {len(self.flow)}, "
                f"got shape {tuple(h.shape)}."
            )
        _check.same_place("h", h, self.weight)
        return slice_conv(h, self.weight[:, 0], backend=backend)
