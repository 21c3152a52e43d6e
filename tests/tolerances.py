"""One table of tolerances by dtype, and how every error in these tests is measured."""

import math
from itertools import combinations

import torch
from torch import Tensor

from fernn.flows import Flow, Velocity

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}
"""What is exact may differ by this much of the largest entry. What interpolates or leaks is
measured instead, and its bound stands with the measurement in the test's docstring."""

BROKEN = 0.05
"""A negative control must miss its statement by at least this much."""


def error(got: Tensor, want: Tensor, norm: float = math.inf) -> float:
    """‖got − want‖ / ‖want‖ in double precision: the largest entries, or all with norm=2."""
    assert got.shape == want.shape, (got.shape, want.shape)
    scale = torch.linalg.vector_norm(want.double(), norm).item()
    assert scale > 0, "the expected value is zero everywhere: nothing is compared"
    return torch.linalg.vector_norm(got.double() - want.double(), norm).item() / scale


def same(got: Tensor, want: Tensor) -> bool:
    """Whether two tensors agree to the tolerance of their dtype."""
    assert got.dtype == want.dtype, (got.dtype, want.dtype)
    return error(got, want) < TOLERANCE[want.dtype]


def flow_error(
    got: Tensor,
    before: Tensor,
    flow: Flow,
    velocity: Velocity,
    *,
    features: bool = True,
    control: bool = False,
    norm: float = math.inf,
) -> float:
    """How far h[ψ(ν̂)·f](ν) is from ψ_t(ν̂)·h[f](ν − ν̂), the worst step, where ν − ν̂ ∈ V.

    `got` and `before` are lifted sequences [B, T, V, K, *X] of the moved and the resting input.
    There must be something to compare: T ≥ 5, ν̂ ≠ 0, pairs, slices that are not zero and, unless
    this is a negative control, differ across ν.
    """
    index = flow.relative(velocity)
    pairs = (index >= 0).nonzero().flatten()
    want = flow.act_sequence(before[:, :, index[pairs]], velocity, features=features)
    assert want.shape[1] >= 5
    assert torch.as_tensor(velocity).any()
    assert len(pairs) > 0
    slices = want[:, -1].unbind(1)
    assert all(slice_.abs().max() > 0 for slice_ in slices)
    assert control or all(not torch.allclose(a, b) for a, b in combinations(slices, 2))
    return max(error(got[:, t, pairs], want[:, t], norm) for t in range(want.shape[1]))


def smooth(size: int, width: float, *, channels: int = 1, degrees: float = 0.0) -> Tensor:
    """Six Gaussian bumps of `width` pixels about the centre of a square: float64 [2, C, X, X].

    `degrees` turns the bumps counter-clockwise before they are sampled, so nothing interpolates.
    """
    random = torch.Generator().manual_seed(0)
    radius, turn, height = torch.rand(3, 2, channels, 6, 1, 1, generator=random, dtype=torch.double)
    axis = torch.arange(size, dtype=torch.double) - (size - 1) / 2
    angle = 2 * math.pi * turn + math.radians(degrees)
    row = axis[:, None] + 0.2 * size * radius * angle.sin()
    column = axis[None, :] - 0.2 * size * radius * angle.cos()
    return ((2 * height - 1) * torch.exp(-(row**2 + column**2) / (2 * width**2))).sum(2)
