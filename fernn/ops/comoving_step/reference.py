"""The equation, in plain torch: what every other backend must equal, gradients included."""

import torch
from torch import Tensor

from fernn.groups import convolve


def comoving_step(h: Tensor, kernel: Tensor, frames: Tensor, inner: Tensor) -> Tensor:
    """k_{t+1}(ν) = ReLU(W ⋆ k_t(ν) + U ⋆ f_t(ν)), zero outside the image.

    Shapes: h [B, V, C, H, W], kernel [K, C, *k], frames [B, V, c, H, W], moved for every ν, inner
    [K, c, *k] → [B, V, K, H, W].
    """
    recurrent = convolve(h.flatten(0, 1), kernel, "zeros")
    drive = convolve(frames.flatten(0, 1), inner, "zeros")
    return torch.relu(recurrent + drive).reshape(*h.shape[:2], *drive.shape[1:])
