"""A band-limited steerable basis: harmonics z^m on rings of pixels, turned by changing their phase.

A kernel z^m·w(|z|) on the pixels z = x + iy responds to a smooth signal as the m-th derivative that
turns with phase m·θ, plus what the square grid aliases from frequency m − 4. That alias is
proportional to Σ_z z⁴|z|^{2i} w(|z|), so the rings are chosen to make these sums vanish: on 3×3 an
edge weighs four times a corner, as in the isotropic Laplacian. A ring of radius j carries the
frequencies up to 2j, and none above 3: bilinear images have no fourth derivative to speak of.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

RING_WIDTH = 0.6
MAX_FREQUENCY = 3


@lru_cache(maxsize=32)
def rotated_basis(kernel_size: int, orientations: int) -> Tensor:
    """Every basis function at every orientation: float64 [basis, N, k, k].

    6 functions for 3×3, 13 for 5×5. Orientation n is turned counter-clockwise by 360°·n/N; turns
    by 90° permute the samples exactly. Each function has unit norm, averaged over its phase.
    """
    radius = kernel_size // 2
    axis = torch.arange(-radius, radius + 1, dtype=torch.double)
    down, right = torch.meshgrid(axis, axis, indexing="ij")
    z = torch.complex(right, -down)
    turn = torch.arange(orientations, dtype=torch.double) * (2 * math.pi / orientations)

    functions = []
    for ring in range(radius + 1):
        weight = _ring(z, ring)
        for frequency in range(min(2 * ring, MAX_FREQUENCY) + 1):
            harmonic = z**frequency * weight
            turned = harmonic * torch.exp(-1j * frequency * turn)[:, None, None]
            parts = (turned.real,) if frequency == 0 else (turned.real, turned.imag)
            norm = harmonic.abs().norm() / math.sqrt(len(parts))
            functions += [part / norm for part in parts]
    return torch.stack(functions)


def _ring(z: Tensor, ring: int) -> Tensor:
    """Weights w(|z|) near radius `ring`, on the pixels within its square, free of alias."""
    if ring == 0:
        return (z.abs() == 0).double()
    inside = (torch.maximum(z.real.abs(), z.imag.abs()) <= ring) & (z.abs() > 0)
    profile = torch.exp(-0.5 * ((z.abs() - ring) / RING_WIDTH) ** 2) * inside
    # The least change relative to the profile that makes the sums vanish: w = p·(1 − Aᵀλ).
    moments = torch.stack([(z**4).real * z.abs() ** (2 * i) for i in range(2 * ring - 1)])
    moments = (moments / moments.abs().amax((-2, -1), keepdim=True)).flatten(1)
    gram = (moments * profile.flatten()) @ moments.T
    change = torch.linalg.solve(gram, moments @ profile.flatten()) @ moments
    weight: Tensor = profile * (1 - change.reshape(profile.shape))
    return weight
