"""The equation, in plain torch: what every other backend must equal, gradients included."""

import torch.nn.functional as F
from torch import Tensor


def slice_conv(h: Tensor, weight: Tensor) -> Tensor:
    """κ_ν ⋆ h(ν) as one convolution whose groups are the velocities."""
    batch, velocities, channels = h.shape[:3]
    halo = weight.shape[-1] // 2
    slices = h.transpose(1, 2).flatten(0, 1)  # [B·K, V, H, W]
    padded = F.pad(slices, (halo,) * 4, mode="circular")
    out = F.conv2d(padded, weight[:, None], groups=velocities)
    return out.reshape(batch, channels, velocities, *h.shape[3:]).transpose(1, 2)
