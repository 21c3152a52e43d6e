"""Convolutions between channels-last images, by the library underneath.

On a torus an image carries its halo and needs no padding; elsewhere it is zero outside, and cuDNN
pads as it reads.
"""

import torch
from torch import Tensor

from fernn.ops._backend import ALIGNED

LAST = torch.channels_last


def kernel_of(kernel: Tensor, dtype: torch.dtype) -> Tensor:
    """[K, C, ky, kx] as a convolution reads it."""
    return kernel.to(dtype).contiguous(memory_format=LAST)


def adjoint_of(kernel: Tensor, dtype: torch.dtype) -> Tensor:
    """The same for the gradient of its input: [C, K, ky, kx], flipped."""
    return kernel_of(kernel.transpose(0, 1).flip(2, 3), dtype)


def convolve(x: Tensor, weight: Tensor, padding: int = 0) -> Tensor:
    """[..., H + 2r, W + 2r, C] → [..., H, W, K], or [..., H, W, C] with a padding of r."""
    conv = torch.conv2d(_images(x), weight, padding=padding).permute(0, 2, 3, 1).contiguous()
    return conv.reshape(*x.shape[:-3], *conv.shape[1:])


def correlate(g: Tensor, x: Tensor, like: Tensor, padding: int = 0) -> Tensor:
    """Σ_q g(q) x(q + τ) for every τ of a kernel shaped as `like`: [C, K, ky, kx].

    Shapes: g [..., H, W, C], x [..., H + 2r, W + 2r, K], or [..., H, W, K] with a padding of r.
    """
    if x.shape[-1] <= ALIGNED and not padding:  # cuDNN has no fast one for a few channels
        (ky, kx), (height, width) = like.shape[2:], g.shape[-3:-1]
        taps = [x[..., i : i + height, j : j + width, :] for i in range(ky) for j in range(kx)]
        product = g.flatten(0, -2).T @ torch.cat(taps, -1).flatten(0, -2)
        return product.reshape(len(like), ky, kx, -1).permute(0, 3, 1, 2)
    ones, none, around = [1, 1], [0, 0], [padding, padding]
    gradient: Tensor = torch.ops.aten.convolution_backward(
        _images(g), _images(x), like, None, ones, around, ones, False, none, 1, [False, True, False]
    )[1]
    return gradient


def _images(x: Tensor) -> Tensor:
    """[..., H, W, C] → [N, C, H, W] in place, channels-last."""
    return x.flatten(0, -4).permute(0, 3, 1, 2)
