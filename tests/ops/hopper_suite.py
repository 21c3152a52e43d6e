"""The Hopper kernel against the convolution and the kernels around it, which equal the reference.

`test_flow_step_triton.py` runs this file on a device: Gluon has no interpreter.
"""

import pytest
import torch
from tolerances import TOLERANCE, error
from torch import Tensor

from fernn.ops._launch import index_dtype
from fernn.ops.flow_step import _comoving, _hopper, _step
from fernn.ops.flow_step._cudnn import kernel_of

NEAR = TOLERANCE[torch.bfloat16]
CASES = {
    # V, B, canvas: whole and broken blocks of images, few and many of one ν, more than one wave
    "one velocity": (1, 64, (8, 12)),
    "eight alike": (9, 8, (12, 8)),
    "broken blocks": (5, 24, (5, 4)),
    "many tiles": (9, 64, (28, 28)),
    "many velocities, two rows": (300, 8, (2, 4)),
}
HALVES = [torch.bfloat16, torch.float16]


def random(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda").to(dtype)


def shifts(slices: int, canvas: tuple[int, int]) -> Tensor:
    return torch.stack([torch.randint(0, n, (slices,), device="cuda") for n in canvas], 1).int()


def filled(h: Tensor) -> Tensor:
    """The halo buffer of h [V, B, H, W, C]."""
    weight = h.new_empty(1, 1, 3, 3)
    return _step.fill_halo(h, _step.empty_halo(h, weight, h.shape[1], h.shape[4]))


def poisoned(x: Tensor) -> Tensor:
    return torch.full_like(x, 7)


def unpacked(bits: Tensor) -> Tensor:
    return ((bits[..., None] >> torch.arange(8, device="cuda")) & 1).flatten(-2) > 0


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the convolution of cuDNN and one kernel around it make the step."""
    monkeypatch.setattr(_comoving, "_hopper", None)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("source", [64, 128])
@pytest.mark.parametrize("name", CASES)
def test_advance(
    name: str, source: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices, batch, canvas = CASES[name]
    halo = filled(random(slices, batch, *canvas, source, dtype=dtype))
    weight = kernel_of(random(128, source, 3, 3) * 0.05, dtype)
    patches, columns = random(batch, *canvas, 16, dtype=dtype), random(128, 16, dtype=dtype)
    at, to = shifts(slices, canvas), shifts(slices, canvas)
    state = random(slices, batch, *canvas, 128, dtype=dtype)
    pool = _step.Pool(random(batch, *canvas, 128, dtype=dtype), at.new_empty(0), to)
    pool = pool._replace(arg=poisoned(pool.value.to(index_dtype(slices))))
    got = tuple(poisoned(x) for x in (state, filled(state), _step.empty_bits(state)))
    want = tuple(torch.empty_like(x) for x in got)
    assert _hopper.fits(halo, weight, patches, got[1])
    _comoving.advance(halo, weight, patches, columns, at, *got, pool)
    assert torch.equal(got[1], filled(got[0]))
    assert torch.equal(unpacked(got[2]), got[0] > 0)
    moved = torch.stack(
        [h.roll(tuple(s), (1, 2)) for h, s in zip(got[0], to.tolist(), strict=True)]
    )
    assert torch.equal(pool.value, moved.amax(0))
    assert torch.equal(moved.gather(0, pool.arg.long()[None])[0], pool.value)
    without_it(monkeypatch)
    _comoving.advance(halo, weight, patches, columns, at, *want)
    for mine, theirs in zip(got[0].float(), want[0].float(), strict=True):  # ν by ν
        assert error(mine, theirs, norm=2) < NEAR


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("readout", [None, "lab", "ahead"])
@pytest.mark.parametrize("name", CASES)
def test_retreat(
    name: str, readout: str | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices, batch, canvas = CASES[name]
    halo = filled(random(slices, batch, *canvas, 128, dtype=dtype))
    adjoint = kernel_of(random(128, 128, 3, 3) * 0.05, dtype)
    patches = random(batch, *canvas, 16, dtype=dtype)
    at, to = shifts(slices, canvas), shifts(slices, canvas)
    shape = slices, batch, *canvas, 128 // 8
    bits = torch.randint(0, 256, shape, device="cuda", dtype=torch.uint8)
    pool = None
    if readout is not None:
        arg = torch.randint(0, slices, (batch, *canvas, 128), device="cuda")
        arg = arg.to(index_dtype(slices))
        share = random(batch, *canvas, 128, dtype=dtype)
        pool = _step.Pool(share, arg, to if readout == "ahead" else None)
    got, want = poisoned(halo), torch.empty_like(halo)
    assert _hopper.fits(halo, adjoint, patches, got)
    columns = _comoving.retreat(halo, adjoint, pool, bits, at, patches, got)
    inside = got[:, :, 1:-1, 1:-1].contiguous()
    assert torch.equal(got, filled(inside))
    assert not inside[~unpacked(bits)].any()
    without_it(monkeypatch)
    expected = _comoving.retreat(halo, adjoint, pool, bits, at, patches, want)
    for mine, theirs in zip(got.float(), want.float(), strict=True):  # ν by ν
        assert error(mine, theirs, norm=2) < NEAR
    assert error(columns.float(), expected.float(), norm=2) < NEAR


def test_every_run_gives_the_same_bits() -> None:
    """No sum depends on who comes first: a difference is a buffer that was reused too early."""
    slices, batch, canvas = 9, 120, (28, 28)  # broken blocks, boxes of eight, many waves
    halo = filled(random(slices, batch, *canvas, 128))
    weight = kernel_of(random(128, 128, 3, 3) * 0.05, torch.bfloat16)
    patches, columns = random(batch, *canvas, 16), random(128, 16)
    at, to = shifts(slices, canvas), shifts(slices, canvas)
    h = random(slices, batch, *canvas, 128)
    share, arg = random(batch, *canvas, 128), torch.randint(0, slices, (batch, *canvas, 128))
    pool = _step.Pool(share, arg.to("cuda", torch.uint8), to)
    first: list[Tensor] = []
    for _ in range(20):
        state, new, back = torch.empty_like(h), torch.empty_like(halo), torch.empty_like(halo)
        bits = _step.empty_bits(state)
        _comoving.advance(halo, weight, patches, columns, at, state, new, bits)
        sums = _comoving.retreat(halo, weight, pool, bits, at, patches, back)
        made = [state, new, bits, back, sums]
        first = first or made
        assert all(torch.equal(a, b) for a, b in zip(made, first, strict=True))


def test_more_values_than_32_bits_count() -> None:
    """The last images of a large batch are those of a small one; needs 40 GB."""
    slices, batch, part, canvas = 25, 1024, 64, (28, 28)
    assert slices * batch * canvas[0] * canvas[1] * 128 > 2**31
    h = random(slices, part, *canvas, 128)
    weight = kernel_of(random(128, 128, 3, 3) * 0.05, torch.bfloat16)
    small, columns, at = random(part, *canvas, 16), random(128, 16), shifts(slices, canvas)
    share, arg = random(part, *canvas, 128), torch.randint(0, slices, (part, *canvas, 128))
    arg = arg.to("cuda", torch.uint8)
    made = []
    for copies in (1, batch // part):  # the same samples again and again
        again = 1, copies, 1, 1, 1
        state, halo = torch.empty_like(h).repeat(again), filled(h.repeat(again))
        bits, new, patches = _step.empty_bits(state), poisoned(halo), small.repeat(again[1:])
        _comoving.advance(halo, weight, patches, columns, at, state, new, bits)
        back = halo  # what was read forward is not needed any more
        pool = _step.Pool(*(x.repeat(again[1:]) for x in (share, arg)), at)
        _comoving.retreat(new, weight, pool, bits, at, patches, back)
        made.append((state, new, bits, back))
    for few, many in zip(*made, strict=True):
        assert all(torch.equal(few, some) for some in many.split(part, 1))


def test_kernel_leaves_the_rest_to_others() -> None:
    def fits(
        channels: int = 128,
        batch: int = 64,
        canvas: tuple[int, int] = (8, 8),
        slices: int = 2,
        size: int = 3,
        dtype: torch.dtype = torch.bfloat16,
    ) -> bool:
        weight = kernel_of(torch.zeros(channels, 128, size, size, device="cuda"), dtype)
        h = torch.zeros(2, batch, *canvas, 128, device="cuda", dtype=dtype)
        new = _step.empty_halo(h, weight, batch, channels)
        patches = torch.zeros(batch, *canvas, 16, device="cuda", dtype=dtype)
        return _hopper.fits(new[:slices], weight, patches, new)

    assert fits()
    assert not fits(dtype=torch.float32)
    assert not fits(channels=64)
    assert not fits(canvas=(8, 10))
    assert not fits(batch=65)
    assert not fits(batch=24)
    assert not fits(slices=1)
    assert not fits(size=5)
