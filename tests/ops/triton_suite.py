"""Every Triton kernel against the reference: outputs and all gradients, at awkward sizes.

`test_flow_step_triton.py` and `test_flow_pool.py` run this file in a process of its own: in the
interpreter on the CPU, whose switch is read when Triton is imported, and on a CUDA device.
"""

import os

import pytest
import torch
from tolerances import TOLERANCE, error, same
from torch import Tensor

from fernn.ops.flow_pool import reference as pool_reference
from fernn.ops.flow_step import reference

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
STEPS = {
    # B, V, C → K, canvas, σ, slices of h and of the drive, size of the kernel
    "plain": (2, 3, 5, 5, (3, 7), "relu", 3, 1, 3),
    "one slice of h for every ν": (1, 3, 9, 11, (5, 4), "relu", 1, 1, 3),
    "lifted drive, tanh": (1, 5, 3, 12, (5, 3), "tanh", 5, 5, 3),
    "wide kernel, few channels, no σ": (1, 3, 9, 4, (5, 7), "identity", 3, 1, 5),
    "one dimension": (2, 3, 6, 6, (13,), "relu", 3, 1, 3),
    "one velocity, many channels": (1, 1, 4, 130, (3, 4), "relu", 1, 1, 3),
}


@pytest.fixture(autouse=True)
def _exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)


def strided(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random values in a layout that no kernel wishes for."""
    x = torch.randn(*shape[::-1], device=DEVICE, dtype=dtype)
    return x.permute(*reversed(range(len(shape)))).requires_grad_()


def shifts(velocities: int, dim: int) -> Tensor:
    return torch.randint(-20, 20, (velocities, dim), device=DEVICE)


def gradients(output: Tensor, inputs: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, inputs, grad)


@pytest.mark.parametrize("name", STEPS)
def test_flow_step(name: str) -> None:
    from fernn.ops.flow_step import triton

    batch, velocities, source, target, canvas, sigma, slices, drives, size = STEPS[name]
    h = strided(batch, slices, source, *canvas)
    kernel = strided(target, source, *(size,) * len(canvas))
    drive = strided(batch, drives, target, *canvas)
    shift = shifts(velocities, len(canvas))
    got = triton.flow_step(h, kernel, drive, shift, sigma)
    want = reference.flow_step(h.expand(-1, velocities, *h.shape[2:]), kernel, drive, shift, sigma)
    assert same(got, want)
    grad = torch.randn_like(want)
    inputs = (h, kernel, drive)
    pairs = zip(gradients(got, inputs, grad), gradients(want, inputs, grad), strict=True)
    assert all(same(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("ahead", [0, 1])
@pytest.mark.parametrize("through", ["both", "pool"])
def test_step_with_its_readout_over_time(ahead: int, through: str) -> None:
    """Three steps from one slice, each reading the halo buffer of the last, pooled at the end."""
    from fernn.ops._launch import reduce_shift
    from fernn.ops.flow_step.triton import pack, step

    h, kernel, shift = strided(1, 1, 5, 3, 5), strided(5, 5, 3, 3), shifts(3, 2)
    drives = [strided(1, 1, 5, 3, 5) for _ in range(3)]
    state, halo = h.permute(0, 1, 3, 4, 2).contiguous(), None
    packed, reduced = pack(kernel, h.dtype), reduce_shift(shift, (3, 5))
    want = h.expand(-1, 3, -1, -1, -1)
    for t, drive in enumerate(drives):
        pool = ahead if t == 2 else None
        state, halo, pooled = step(state, halo, packed, drive, reduced, "relu", pool=pool)
        want = reference.flow_step(want, kernel, drive, shift, "relu")
    got, seen = state.permute(0, 1, 4, 2, 3), pooled.permute(0, 3, 1, 2)
    want_seen = pool_reference.flow_pool(want, ahead * shift)
    assert same(got, want)
    assert same(seen, want_seen)
    weights = torch.randn_like(want), torch.randn_like(want_seen)
    losses = []
    for state, readout in ((got, seen), (want, want_seen)):
        loss = (readout * weights[1]).sum()
        losses.append(loss + (state * weights[0]).sum() if through == "both" else loss)
    inputs = (h, kernel, *drives)
    one = torch.ones_like(losses[0])
    pairs = zip(gradients(losses[0], inputs, one), gradients(losses[1], inputs, one), strict=True)
    assert all(same(mine, theirs) for mine, theirs in pairs)


def test_step_takes_a_bias_for_its_drive() -> None:
    from fernn.ops._launch import reduce_shift
    from fernn.ops.flow_step.triton import pack, step

    h, kernel, bias = strided(2, 1, 6, 7, 5), strided(12, 6, 3, 3), strided(12)
    shift = torch.zeros(1, 2, dtype=torch.long, device=DEVICE)
    state = h.permute(0, 1, 3, 4, 2)
    drive = bias[None, None, :, None, None]
    packed = pack(kernel, h.dtype)
    got, _, _ = step(state, None, packed, drive, reduce_shift(shift, (7, 5)), "relu")
    want = reference.flow_step(h, kernel, drive, shift, "relu").permute(0, 1, 3, 4, 2)
    assert same(got, want)
    grad, inputs = torch.randn_like(want), (h, kernel, bias)
    pairs = zip(gradients(got, inputs, grad), gradients(want, inputs, grad), strict=True)
    assert all(same(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize("sigma", ["relu", "tanh"])
def test_step_in_one_kernel(sigma: str) -> None:
    """What the matrix units do with the memory engine, against the convolution and its epilogue."""
    from fernn.ops._launch import reduce_shift
    from fernn.ops.flow_step import _hopper, triton

    if DEVICE == "cuda" and torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("this kernel is for Hopper")
    dtype = torch.float32 if DEVICE == "cpu" else torch.bfloat16
    h, kernel = strided(1, 3, 4, 8, 64, dtype=dtype).contiguous(), strided(64, 64, 3, 3) * 0.05
    drive, shift = strided(1, 1, 64, 4, 8, dtype=dtype), reduce_shift(shifts(3, 2), (4, 8))
    packed = triton.pack(kernel, dtype)
    halo = triton.halo_of(h, packed)
    state = h.permute(0, 1, 4, 2, 3).float()
    want = reference.flow_step(state, kernel, drive.float(), shift, sigma).permute(0, 1, 3, 4, 2)
    out = tuple(
        torch.full_like(x, 7) for x in triton._outputs(h, packed.weight, shift, sigma, False)[:3]
    )
    strides, code = triton._strides(drive), triton._ACTIVATIONS[sigma]
    _hopper.launch(halo, packed.weight, drive, strides, shift, code, out)
    assert error(out[0].float(), want, norm=2) < TOLERANCE[dtype]
    assert torch.equal(out[1], triton.halo_of(out[0], packed))
    if sigma == "relu":
        bits = (out[2][..., None] >> torch.arange(8, device=DEVICE)) & 1
        assert torch.equal(bits.flatten(-2) > 0, out[0] > 0)


@pytest.mark.parametrize("canvas", [(3, 5), (7,)])
@pytest.mark.parametrize(("velocities", "channels"), [(5, 11), (1, 130)])
def test_flow_pool(canvas: tuple[int, ...], velocities: int, channels: int) -> None:
    from fernn.ops.flow_pool import triton

    h, shift = strided(2, velocities, channels, *canvas), shifts(velocities, len(canvas))
    got, want = triton.flow_pool(h, shift), pool_reference.flow_pool(h, shift)
    assert torch.equal(got, want)
    grad = torch.randn_like(want)
    assert torch.equal(*(gradients(out, (h,), grad)[0] for out in (got, want)))


def test_flow_step_in_half_precision_under_autocast() -> None:
    from fernn.ops.flow_step import triton

    h, kernel, drive = strided(1, 3, 8, 3, 5), strided(8, 8, 3, 3), strided(1, 1, 8, 3, 5)
    shift, near = shifts(3, 2), TOLERANCE[torch.bfloat16]
    with torch.autocast(DEVICE, torch.bfloat16):
        got = triton.flow_step(h, kernel, drive, shift, "relu")
    want = reference.flow_step(h, kernel, drive, shift, "relu")
    assert got.dtype == torch.bfloat16
    assert error(got, want, norm=2) < near
    grad, inputs = torch.randn_like(want), (h, kernel, drive)
    mine, theirs = gradients(got, inputs, grad.bfloat16()), gradients(want, inputs, grad)
    assert [g.dtype for g in mine] == [torch.float32] * 3  # the kernel's gradient sums in float32
    assert all(error(a, b, norm=2) < near for a, b in zip(mine, theirs, strict=True))


def test_ops_compile_into_one_graph() -> None:
    from fernn.ops.flow_pool.triton import flow_pool
    from fernn.ops.flow_step.triton import flow_step

    def model(h: Tensor, kernel: Tensor, drive: Tensor, shift: Tensor) -> Tensor:
        h = flow_step(h, kernel, drive, shift, "relu")
        return flow_pool(flow_step(h, kernel, drive, shift, "tanh"), shift)

    inputs = strided(1, 2, 8, 3, 4), strided(8, 8, 3, 3), strided(1, 1, 8, 3, 4)
    shift = shifts(2, 2)
    got = torch.compile(model, fullgraph=True, backend="aot_eager")(*inputs, shift)
    want = model(*inputs, shift)
    assert torch.equal(got, want)
    grad = torch.randn_like(want)
    pairs = zip(gradients(got, inputs, grad), gradients(want, inputs, grad), strict=True)
    assert all(same(mine, theirs) for mine, theirs in pairs)
