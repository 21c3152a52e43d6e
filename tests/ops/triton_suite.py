"""Every Triton kernel against the reference: outputs and all gradients, at awkward sizes.

`test_flow_step_triton.py` and `test_flow_pool.py` run this file in a process of its own: in the
interpreter on the CPU, whose switch is read when Triton is imported, and on a CUDA device.
"""

import os

import pytest
import torch
from tolerances import TOLERANCE, error, same
from torch import Tensor, nn
from torch.export import Dim

from fernn.ops._launch import reduce_shift
from fernn.ops.flow_pool import reference as pool_reference
from fernn.ops.flow_step import reference

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
STEPS = {
    # B, V, C → K, canvas, σ, slices of the drive, size of the kernel
    "plain": (2, 3, 5, 5, (3, 7), "relu", 1, 3),
    "other channels": (1, 3, 9, 11, (5, 4), "relu", 1, 3),
    "lifted drive, tanh": (1, 5, 3, 12, (5, 3), "tanh", 5, 3),
    "wide kernel, few channels, no σ": (1, 3, 9, 4, (5, 7), "identity", 1, 5),
    "one dimension": (2, 3, 6, 6, (13,), "relu", 1, 3),
    "one velocity, many channels": (1, 1, 4, 130, (3, 4), "relu", 1, 3),
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


@pytest.mark.parametrize(("name", "slices"), [*((name, None) for name in STEPS), ("plain", 1)])
def test_flow_step(name: str, slices: int | None) -> None:
    from fernn.ops.flow_step import triton

    batch, velocities, source, target, canvas, sigma, drives, size = STEPS[name]
    h = strided(batch, slices or velocities, source, *canvas)
    kernel = strided(target, source, *(size,) * len(canvas))
    drive = strided(batch, drives, target, *canvas)
    shift = shifts(velocities, len(canvas))
    got = triton.flow_step(h, kernel, drive, shift, sigma)
    want = reference.flow_step(h, kernel, drive, shift, sigma)
    assert same(got, want)
    grad = torch.randn_like(want)
    inputs = (h, kernel, drive)
    pairs = zip(gradients(got, inputs, grad), gradients(want, inputs, grad), strict=True)
    assert all(same(mine, theirs) for mine, theirs in pairs)


@pytest.mark.parametrize(
    ("velocities", "channels", "canvas"),
    [(5, 11, (3, 5)), (5, 11, (7,)), (1, 130, (3, 5)), (1, 130, (7,)), (257, 2, (3,))],
)
def test_flow_pool(velocities: int, channels: int, canvas: tuple[int, ...]) -> None:
    """The last slice wins in the first image: its index takes more than a byte where V is large."""
    from fernn.ops.flow_pool import triton

    h, shift = strided(2, velocities, channels, *canvas), shifts(velocities, len(canvas))
    with torch.no_grad():
        h[0, -1] += 9
    got, want = triton.flow_pool(h, shift), pool_reference.flow_pool(h, shift)
    assert torch.equal(got, want)
    grad = torch.randn_like(want)
    assert torch.equal(*(gradients(out, (h,), grad)[0] for out in (got, want)))


@pytest.mark.parametrize(("velocities", "channels"), [(5, 11), (1, 130)])
def test_pool_winners(velocities: int, channels: int) -> None:
    """One bit for every value of the states that the maximum was taken from."""
    from fernn.ops.flow_pool import triton

    canvas = 3, 5
    arg = torch.randint(0, velocities, (2, *canvas, channels), device=DEVICE)
    shift = shifts(velocities, 2)
    bits = torch.full((velocities, 2, *canvas, -(-channels // 8)), 7, device=DEVICE)
    table = (shift % torch.tensor(canvas, device=DEVICE)).int()
    bits = triton.winners(arg.to(torch.uint8), table, bits.to(torch.uint8))
    got = ((bits[..., None] >> torch.arange(8, device=DEVICE)) & 1).flatten(-2)[..., :channels]
    won = [(arg == v).roll((-s).tolist(), (1, 2)) for v, s in enumerate(shift)]
    assert torch.equal(got > 0, torch.stack(won))


@pytest.mark.parametrize("sigma", ["relu", "tanh"])
def test_nan_stays_where_it_is(sigma: str) -> None:
    """A state that has broken down must be seen: neither ReLU nor the maximum may hide it."""
    from fernn.ops.flow_pool import triton as pool
    from fernn.ops.flow_step import _step, triton

    h, kernel, drive = (
        strided(*s).detach() for s in ((2, 3, 5, 4, 7), (9, 5, 3, 3), (2, 1, 9, 4, 7))
    )
    h[0, 1, 2, 3, 4] = float("nan")
    shift = shifts(3, 2)
    want = reference.flow_step(h, kernel, drive, shift, sigma)
    assert 0 < want.isnan().sum() < want.numel()
    assert torch.equal(triton.flow_step(h, kernel, drive, shift, sigma).isnan(), want.isnan())
    pooled = pool_reference.flow_pool(want, shift)
    assert 0 < pooled.isnan().sum() < pooled.numel()
    assert torch.equal(pool.flow_pool(want, shift).isnan(), pooled.isnan())

    at = reduce_shift(shift, (4, 7))
    conv = want.permute(0, 1, 3, 4, 2).contiguous()
    state, seen = torch.empty_like(conv), conv.new_empty(2, 4, 7, 9)
    readout = _step.Pool(seen, torch.empty_like(seen, dtype=torch.uint8), at)
    still = _step.Frame(torch.zeros_like(at), torch.zeros_like(at))
    _step.forward(conv, torch.zeros_like(drive), still, "identity", state, pool=readout)
    assert torch.equal(seen.permute(0, 3, 1, 2).isnan(), pooled.isnan())


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


@pytest.mark.parametrize("sigma", ["relu", "tanh"])
def test_second_gradients_raise(sigma: str) -> None:
    """As `flow_step` says: none is better than one that is wrong."""
    from fernn.ops.flow_step.triton import flow_step

    h, kernel, drive = strided(1, 2, 8, 3, 4), strided(8, 8, 3, 3), strided(1, 1, 8, 3, 4)
    shift = shifts(2, 2)
    inputs = h, kernel, drive
    first = torch.autograd.grad(
        flow_step(*inputs, shift, sigma).square().sum(), inputs, create_graph=True
    )
    for gradient in first:
        with pytest.raises(RuntimeError, match="no autograd formula was registered"):
            torch.autograd.grad(gradient.sum(), inputs, retain_graph=True)
    with pytest.raises(RuntimeError, match="functorch"):
        torch.func.grad(lambda w: flow_step(h, w, drive, shift, sigma).sum())(kernel)


def test_ops_export_for_batches_of_any_size() -> None:
    from fernn.ops.flow_pool.triton import flow_pool
    from fernn.ops.flow_step.triton import flow_step

    kernel, shift = strided(8, 8, 3, 3).detach(), shifts(2, 2)

    class Step(nn.Module):
        def forward(self, h: Tensor, drive: Tensor) -> Tensor:
            return flow_pool(flow_step(h, kernel, drive, shift, "relu"), shift)

    def inputs(batch: int) -> tuple[Tensor, ...]:
        return tuple(torch.randn(batch, n, 8, 3, 4, device=DEVICE) for n in (2, 1))

    shapes = {"h": {0: Dim.DYNAMIC}, "drive": {0: Dim.DYNAMIC}}
    program = torch.export.export(Step(), inputs(2), dynamic_shapes=shapes)
    given = inputs(3)
    assert torch.equal(program.module()(*given), Step()(*given))


def test_a_backward_pass_inside_of_autocast_keeps_float32() -> None:
    from fernn.ops.flow_step.triton import flow_step

    inputs = strided(1, 2, 16, 3, 4), strided(16, 16, 3, 3), strided(1, 1, 16, 3, 4)
    out = flow_step(*inputs, shifts(2, 2), "tanh")
    grad = torch.randn_like(out)
    want = torch.autograd.grad(out, inputs, grad, retain_graph=True)
    with torch.autocast(DEVICE, torch.bfloat16):
        got = torch.autograd.grad(out, inputs, grad)
    assert all(same(mine, theirs) for mine, theirs in zip(got, want, strict=True))
