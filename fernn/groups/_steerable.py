"""A band-limited steerable basis: harmonics z^m on rings of pixels, turned by changing their phase.

A kernel z^m·w(|z|) on the pixels z = x + iy responds to a smooth signal as the m-th derivative that
turns with phase m·θ, plus what the square grid aliases from frequency m − 4. That alias is
proportional to Σ_z z⁴|z|^{2i} w(|z|), so the rings are chosen to make these sums vanish: on 3×3 an
edge weighs four times a corner, as in the isotropic Laplacian. A ring of radius j carries the
frequencies up to 2j, and none above 3: bilinear images have no fourth derivative to speak of.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fernn._constant import Constant, lasting

RING_WIDTH = 0.6
MAX_FREQUENCY = 3


_CACHE: dict[tuple[int, int], NDArray[np.float64]] = {}
_COPIES: dict[tuple[int, int], Constant] = {}


def basis_size(kernel_size: int) -> int:
    """How many functions there are, without making them: 6 for 3×3, 13 for 5×5."""
    rings = range(kernel_size // 2 + 1)
    return sum(2 * min(2 * ring, MAX_FREQUENCY) + 1 for ring in rings)


def rotated_basis(kernel_size: int, orientations: int) -> Tensor:
    """Every basis function at every orientation: float64 [basis, N, k, k] on the CPU.

    Orientation n is turned counter-clockwise by 360°·n/N; turns by 90° permute the samples exactly.
    Each function has unit norm, averaged over its phase.
    """
    key = (kernel_size, orientations)
    if key not in _CACHE:  # numpy, so that no device, mode or trace of torch's is kept
        _CACHE[key] = _make(kernel_size, orientations)
    return torch.from_numpy(_CACHE[key])


def basis_on(kernel_size: int, orientations: int, device: torch.device) -> Tensor:
    """`rotated_basis` on a device, copied there once: a kernel's expansion waits for no host."""
    key = (kernel_size, orientations)
    constant = _COPIES.get(key)
    if constant is None:
        basis = rotated_basis(kernel_size, orientations)
        constant = Constant(basis)
        if lasting(basis):
            _COPIES[key] = constant
    return constant.on(device)


def _make(kernel_size: int, orientations: int) -> NDArray[np.float64]:
    radius = kernel_size // 2
    axis = np.arange(-radius, radius + 1.0)
    z = axis[None, :] - 1j * axis[:, None]
    turn = np.arange(orientations) * (2 * np.pi / orientations)

    functions = []
    for ring in range(radius + 1):
        weight = _ring(z, ring)
        for frequency in range(min(2 * ring, MAX_FREQUENCY) + 1):
            # Where a model is compiled before it ran, torch computes this, whose 0⁰ would be nan.
            harmonic = (z**frequency if frequency else np.ones_like(z)) * weight
            turned = harmonic * np.exp(-1j * frequency * turn)[:, None, None]
            parts = (turned.real,) if frequency == 0 else (turned.real, turned.imag)
            norm = np.linalg.norm(harmonic) / len(parts) ** 0.5
            functions += [part / norm for part in parts]
    basis: NDArray[np.float64] = np.stack(functions)
    return basis


def _ring(z: NDArray[np.complex128], ring: int) -> NDArray[np.float64]:
    """Weights w(|z|) near radius `ring`, on the pixels within its square, free of alias."""
    distance: NDArray[np.float64] = np.abs(z)
    if ring == 0:
        return np.where(distance == 0, 1.0, 0.0)
    inside = (np.maximum(np.abs(z.real), np.abs(z.imag)) <= ring) & (distance > 0)
    profile = np.exp(-0.5 * ((distance - ring) / RING_WIDTH) ** 2) * inside
    # The least change relative to the profile that makes the sums vanish: w = p·(1 − Aᵀλ).
    moments = np.stack([((z**4).real * distance ** (2 * i)).ravel() for i in range(2 * ring - 1)])
    moments /= np.abs(moments).max(1, keepdims=True)
    gram = (moments * profile.ravel()) @ moments.T
    change = np.linalg.solve(gram, moments @ profile.ravel()) @ moments
    weight: NDArray[np.float64] = profile * (1 - change.reshape(profile.shape))
    return weight
