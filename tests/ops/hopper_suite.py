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


HALVES = [torch.bfloat16, torch.float16]


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def poisoned(x: Tensor) -> Tensor:
    return torch.full_like(x, 7)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def unpacked(bits: Tensor) -> Tensor:
    return ((bits[..., None] >> torch.arange(8, device="cuda")) & 1).flatten(-2) > 0


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_advance(name: str, dtype: torch.dtype) -> None:
    from fernn.ops.flow_step import _hopper, _step
    from fernn.ops.flow_step._cudnn import convolve, kernel_of

    batch, slices, source, canvas, size = CASES[name]
    h = random(batch, slices, *canvas, source, dtype=dtype)
    weight = kernel_of(random(128, source, size, size) * 0.05, h.dtype)
    halo = _step.fill_halo(h, _step.empty_halo(h, weight, slices, source))
    patches, columns = random(batch, *canvas, 16, dtype=dtype), random(128, 16, dtype=dtype)
    drive = (patches.float() @ columns.float().T).permute(0, 3, 1, 2)[:, None]
    at = torch.randint(0, min(canvas), (slices, 2), device="cuda").int()
    state = random(batch, slices, *canvas, 128, dtype=dtype)
    want = state, _step.empty_halo(state, weight, slices, 128), _step.empty_bits(state)
    frame = _step.Frame(torch.zeros_like(at), at)
    _step.forward(convolve(halo, weight), drive, frame, "relu", *want)
    got = tuple(poisoned(x) for x in want)
    assert _hopper.fits(halo, weight, columns, state)
    _hopper.advance(halo, weight, patches, columns, at, *got)
    assert error(got[0].float(), want[0].float(), norm=2) < NEAR
    assert torch.equal(got[1], _step.fill_halo(got[0], poisoned(got[1])))
    assert torch.equal(unpacked(got[2]), got[0] > 0)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("batch", [1, 5, 19])
def test_one_image_of_patches_stands_for_all(batch: int, dtype: torch.dtype) -> None:
    """As for a bias, whose patches are ones; here they differ from pixel to pixel."""
    from fernn.ops.flow_step import _hopper, _step
    from fernn.ops.flow_step._cudnn import convolve, kernel_of

    canvas = (8, 12)
    h = random(batch, 1, *canvas, 128, dtype=dtype)
    weight = kernel_of(random(128, 128, 3, 3) * 0.05, dtype)
    halo = _step.fill_halo(h, _step.empty_halo(h, weight, 1, 128))
    patches, columns = random(1, *canvas, 16, dtype=dtype), random(128, 16, dtype=dtype)
    drive = (patches.float() @ columns.float().T).permute(0, 3, 1, 2)[:, None]
    still = torch.zeros(1, 2, device="cuda", dtype=torch.int32)
    want = h.clone(), torch.empty_like(halo), _step.empty_bits(h)
    _step.forward(convolve(halo, weight), drive, _step.Frame(still, still), "relu", *want)
    got = tuple(poisoned(x) for x in want)
    assert _hopper.fits(halo, weight, columns, h)
    _hopper.advance(halo, weight, patches, columns, still, *got)
    for mine, theirs in zip(got[0].float(), want[0].float(), strict=True):  # image by image
        assert error(mine, theirs, norm=2) < NEAR
    assert torch.equal(got[1], _step.fill_halo(got[0], poisoned(got[1])))
    assert torch.equal(unpacked(got[2]), got[0] > 0)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("lab", [True, False])
def test_the_maximum_follows_the_kernel(lab: bool, dtype: torch.dtype) -> None:
    """The step as the forecaster takes it: its pool reads the state that the kernel has written."""
    from fernn.ops.flow_step import _comoving, _hopper, _step
    from fernn.ops.flow_step._cudnn import kernel_of

    batch, slices, canvas = 3, 5, (8, 12)
    h = random(batch, slices, *canvas, 128, dtype=dtype)
    weight = kernel_of(random(128, 128, 3, 3) * 0.05, dtype)
    halo = _step.fill_halo(h, _step.empty_halo(h, weight, slices, 128))
    patches, columns = random(batch, *canvas, 16, dtype=dtype), random(128, 16, dtype=dtype)
    at, to = (torch.randint(0, 8, (slices, 2), device="cuda").int() for _ in range(2))
    value = poisoned(h[:, 0].contiguous())
    arg = poisoned(value.to(torch.uint8))
    pool = _step.Pool(value, arg, None if lab else to)
    state = poisoned(h)
    assert _hopper.fits(halo, weight, columns, state)
    into = state, torch.empty_like(halo), _step.empty_bits(h)
    _comoving.advance(halo, weight, patches, columns, at, *into, pool)
    moves = (at if lab else to).tolist()
    moved = [state[:, v].roll(tuple(move), (1, 2)) for v, move in enumerate(moves)]
    want = torch.stack(moved, 1)
    assert torch.equal(value, want.amax(1))
    assert torch.equal(want.gather(1, arg.long()[:, None])[:, 0], value)
    assert (value > 0).any()


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
