"""The equation, in plain torch: what every other backend must equal, gradients included."""

from torch import Tensor

from fernn.groups import convolve


def slice_conv(h: Tensor, weight: Tensor) -> Tensor:
    """κ_ν ⋆ h(ν) as one convolution whose groups are the velocities."""
    batch, velocities, channels = h.shape[:3]
    slices = h.transpose(1, 2).flatten(0, 1)  # [B·K, V, H, W]
    out = convolve(slices, weight[:, None], "circular", groups=velocities)
    return out.reshape(batch, channels, velocities, *h.shape[3:]).transpose(1, 2)
