"""The equation, in plain torch: what every other backend must equal, gradients included."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fernn.groups import convolve


def conv_stack(x: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """W_n ⋆ ReLU(… ReLU(W_1 ⋆ x + b_1) …) + b_n: [N, K, H, W] → [N, C, H, W]."""
    for index, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        x = convolve(torch.relu(x) if index else x, weight, "zeros", bias)
    return x
