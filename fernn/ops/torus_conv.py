"""A convolution on a torus for channels-last images on a GPU, without a pad.

Memory plan. The image is copied once with its circular halo, by one kernel, and cuDNN reads that.
The backward pass gives the gradient a halo instead, for a halo may sit on either factor of a weight
gradient. What is kept is the image.
"""

from typing import Any

import torch
from torch import Tensor

from fernn.ops._launch import operator
from fernn.ops.flow_step import _step
from fernn.ops.flow_step._cudnn import adjoint_of, convolve, correlate, kernel_of


def torus_conv(x: Tensor, kernel: Tensor) -> Tensor:
    """[N, H, W, C] and [K, C, ky, kx] with odd sizes → [N, H, W, K], in the precision of x."""
    out: Tensor = _conv(x.contiguous(), kernel)
    return out


def _with_halo(x: Tensor, kernel: Tensor) -> Tensor:
    image = x[:, None]
    return _step.fill_halo(image, _step.empty_halo(image, kernel, 1, x.shape[-1]))


@operator("fernn::torus_conv")
def _conv(x: Tensor, kernel: Tensor) -> Tensor:
    return convolve(_with_halo(x, kernel), kernel_of(kernel, x.dtype))[:, 0]


@_conv.register_fake
def _(x: Tensor, kernel: Tensor) -> Tensor:
    return x.new_empty(*x.shape[:3], len(kernel))


@operator("fernn::torus_conv_backward")
def _conv_backward(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    halo, adjoint = _with_halo(grad, kernel), adjoint_of(kernel, x.dtype)
    gradient = correlate(x[:, None], halo, adjoint).float().transpose(0, 1).flip(2, 3)
    return convolve(halo, adjoint)[:, 0], gradient.contiguous()


@_conv_backward.register_fake
def _(grad: Tensor, x: Tensor, kernel: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(x), x.new_empty(kernel.shape, dtype=torch.float32)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    x, kernel = ctx.saved_tensors
    grad_x, grad_kernel = _conv_backward(grad.contiguous(), x, kernel)
    return grad_x, grad_kernel.to(kernel.dtype)


_conv.register_autograd(_backward, setup_context=_setup_context)
