"""The Hopper kernel against the convolution and the kernels around it, which equal the reference.

`test_flow_step_triton.py` runs this file on a device: Gluon has no interpreter.
"""

import pytest
import torch
from tolerances import TOLERANCE, error
from torch import Tensor

NEAR = TOLERANCE[torch.bfloat16]
CASES = {
    # B, V, C, canvas, size of the kernel: whole and broken blocks of images, and more than one wave
    "one velocity": (16, 1, 128, (8, 12), 3),
    "few images": (1, 3, 64, (12, 8), 3),
    "many tiles": (9, 9, 128, (28, 28), 3),
    "wide kernel": (2, 5, 64, (8, 16), 5),
}


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda").bfloat16()


def poisoned(x: Tensor) -> Tensor:
    return torch.full_like(x, 7)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("name", CASES)
def test_advance(name: str) -> None:
    from fernn.ops.flow_step import _hopper, _step
    from fernn.ops.flow_step._cudnn import convolve, kernel_of

    batch, slices, source, canvas, size = CASES[name]
    h = random(batch, slices, *canvas, source)
    weight = kernel_of(random(128, source, size, size) * 0.05, h.dtype)
    halo = _step.fill_halo(h, _step.empty_halo(h, weight, slices, source))
    patches, columns = random(batch, *canvas, 16), random(128, 16)
    drive = (patches.float() @ columns.float().T).permute(0, 3, 1, 2)[:, None]
    at = torch.randint(0, min(canvas), (slices, 2), device="cuda").int()
    state = random(batch, slices, *canvas, 128)
    want = state, _step.empty_halo(state, weight, slices, 128), _step.empty_bits(state)
    frame = _step.Frame(torch.zeros_like(at), at)
    _step.forward(convolve(halo, weight), drive, frame, "relu", *want)
    got = tuple(poisoned(x) for x in want)
    assert _hopper.fits(halo, weight, columns, state)
    _hopper.advance(halo, weight, patches, columns, at, *got)
    assert error(got[0].float(), want[0].float(), norm=2) < NEAR
    assert torch.equal(got[1], _step.fill_halo(got[0], poisoned(got[1])))
    bits = (got[2][..., None] >> torch.arange(8, device="cuda")) & 1
    assert torch.equal(bits.flatten(-2) > 0, got[0] > 0)


def test_kernel_leaves_the_rest_to_others() -> None:
    from fernn.ops.flow_step import _hopper, _step
    from fernn.ops.flow_step._cudnn import kernel_of

    def fits(channels: int, canvas: tuple[int, int], slices: int, dtype: torch.dtype) -> bool:
        h = torch.zeros(1, 2, *canvas, 128, device="cuda", dtype=dtype)
        weight = kernel_of(torch.zeros(channels, 128, 3, 3, device="cuda"), dtype)
        halo = _step.empty_halo(h, weight, slices, 128)
        columns = torch.zeros(channels, 16, device="cuda", dtype=dtype)
        return _hopper.fits(halo, weight, columns, h)

    half = torch.bfloat16
    assert fits(128, (8, 8), 2, half)
    assert not fits(128, (8, 8), 2, torch.float32)
    assert not fits(64, (8, 8), 2, half)
    assert not fits(128, (10, 8), 2, half)
    assert not fits(128, (8, 8), 1, half)
