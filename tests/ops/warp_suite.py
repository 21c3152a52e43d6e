"""The Triton kernels of rotation flows against the reference: outputs and all gradients.

`test_warp_pool.py` runs this file in a process of its own, in Triton's
interpreter or on a device.
"""

import os
from itertools import pairwise

import pytest
import torch
from tolerances import same
from torch import Tensor, nn

from fernn.groups import SE2
from fernn.ops.warp_pool import reference as pool_reference

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"


@pytest.fixture(autouse=True)
def _exact_products(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)


def strided(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random values in a layout that no kernel wishes for."""
    x = torch.randn(*shape[::-1], device=DEVICE, dtype=dtype)
    return x.permute(*reversed(range(len(shape)))).requires_grad_()


def elements(rows: list[tuple[float, ...]]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64, device=DEVICE)


def test_nan_stays_where_it_is() -> None:
    """Neither ReLU nor the maximum hides a state that has broken down, nor is it spread at rest."""
    from fernn.ops.comoving_step.triton import pack, step
    from fernn.ops.warp_pool.triton import motion

    kernel, inner = strided(9, 5, 3, 3).detach(), strided(9, 1, 3, 3).detach()
    h, frames = torch.randn(1, 2, 5, 6, 5), torch.randn(1, 2, 1, 5, 6)
    h[0, 1, 2, 1, 4] = float("nan")
    rest = motion(elements([(0, 0, 0), (0, 0, 0)]), SE2())
    packed = pack(kernel, inner, torch.float32)
    state, seen = step(h.to(DEVICE), packed, frames.to(DEVICE), rest)
    want = torch.zeros(1, 2, 5, 6, 9, dtype=torch.bool, device=DEVICE)
    want[0, 1, 1:4, 0:3] = True
    assert torch.equal(state.isnan(), want)
    assert seen is not None
    assert torch.equal(seen.isnan(), want.any(1))


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize(
    ("source", "target", "channels", "side", "slices"),
    [(8, 8, 1, 3, 3), (5, 19, 2, 3, 1), (3, 130, 1, 5, 3)],
)
def test_comoving_step(
    source: int, target: int, channels: int, side: int, slices: int, pooled: bool
) -> None:
    from fernn.ops.comoving_step import reference
    from fernn.ops.comoving_step.triton import pack, step
    from fernn.ops.warp_pool.triton import motion

    h, kernel = strided(2, slices, source, 5, 6), strided(target, source, side, side)
    frames = torch.randn(2, 3, channels, 5, 6, device=DEVICE)
    inner = strided(target, channels, side, side)
    element = elements([(10, 0, 0), (0, 0, 0), (-30, 0, 0)])
    packed = pack(kernel, inner, torch.float32)
    motions = motion(element, SE2()) if pooled else None
    got, seen = step(h.permute(0, 1, 3, 4, 2).contiguous(), packed, frames, motions)
    got = got.permute(0, 1, 4, 2, 3)
    want = reference.comoving_step(h.expand(-1, 3, -1, -1, -1), kernel, frames, inner)
    assert same(got, want)
    grads = torch.randn_like(want), torch.randn(2, target, 5, 6, device=DEVICE)
    losses = [(got * grads[0]).sum(), (want * grads[0]).sum()]
    if pooled:
        seen, want_seen = (
            seen.permute(0, 3, 1, 2),
            pool_reference.warp_pool(want, element, SE2()),
        )
        assert same(seen, want_seen)
        losses = [a + (b * grads[1]).sum() for a, b in zip(losses, (seen, want_seen), strict=True)]
    mine, theirs = (torch.autograd.grad(loss, (h, kernel, inner)) for loss in losses)
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))


def test_first_comoving_step_and_a_readout_alone() -> None:
    from fernn.ops.comoving_step.triton import pack, step
    from fernn.ops.warp_pool.triton import motion

    kernel, inner = strided(8, 8, 3, 3), strided(8, 1, 3, 3)
    frames = torch.randn(1, 2, 1, 5, 6, device=DEVICE)
    element = elements([(10, 0, 0), (0, 0, 0)])
    _, seen = step(None, pack(kernel, inner, torch.float32), frames, motion(element, SE2()))
    h = torch.relu(torch.conv2d(frames.flatten(0, 1), inner, padding=1)).reshape(1, 2, 8, 5, 6)
    want = pool_reference.warp_pool(h, element, SE2())
    assert same(seen.permute(0, 3, 1, 2), want)
    grad = torch.randn_like(want)
    mine = torch.autograd.grad(seen.permute(0, 3, 1, 2), inner, grad)[0]
    assert same(mine, torch.autograd.grad(want, inner, grad)[0])


@pytest.mark.parametrize(("widths", "side"), [([8, 8, 1], 3), ([24, 24, 24, 2], 3), ([5, 1], 5)])
def test_conv_stack(widths: list[int], side: int) -> None:
    from fernn.ops.conv_stack import reference
    from fernn.ops.conv_stack.triton import joined, memory, pack, run

    layers = [nn.Conv2d(a, b, side, padding=side // 2) for a, b in pairwise(widths)]
    stack = nn.Sequential(*layers).to(DEVICE)
    seen = [strided(2, widths[0], 5, 6) for _ in range(3)]
    packed, last = pack(stack, torch.float32), [x.permute(0, 2, 3, 1).contiguous() for x in seen]
    kept = memory(last[0], len(layers) - 1, len(seen))
    images = [
        run(x.detach(), packed.low, packed.offsets, packed.side, *kept, index)
        for index, x in enumerate(last)
    ]
    got = joined(packed, torch.cat(last), kept, torch.cat(images))
    want = reference.conv_stack(torch.cat(seen), packed.weights, packed.biases)
    assert same(got, want)
    none = memory(last[0], len(layers) - 1, 0)
    assert same(run(last[0].detach(), packed.low, packed.offsets, packed.side, *none, 0), want[:2])
    inputs, grad = (*seen, *stack.parameters()), torch.randn_like(want)
    mine, theirs = (torch.autograd.grad(out, inputs, grad) for out in (got, want))
    assert len(mine) == 3 + 2 * len(layers)
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))


def test_ops_compile_into_one_graph() -> None:
    from fernn.ops.comoving_step.triton import pack, step
    from fernn.ops.warp_pool.triton import motion, warp

    def model(video: Tensor, kernel: Tensor, inner: Tensor, element: Tensor) -> Tensor:
        motions, packed = motion(element, SE2()), pack(kernel, inner, torch.float32)
        frame = warp(video, motions[None], torch.float32)[0]
        _, seen = step(step(None, packed, frame, None)[0], packed, frame, motions)
        return seen.permute(0, 3, 1, 2)

    inputs = strided(8, 8, 3, 3), strided(8, 1, 3, 3)
    video, element = torch.randn(1, 1, 1, 3, 4, device=DEVICE), elements([(10, 0, 0), (0, 0, 0)])
    got = torch.compile(model, fullgraph=True, backend="aot_eager")(video, *inputs, element)
    want = model(video, *inputs, element)
    assert torch.equal(got, want)
    grad = torch.randn_like(want)
    mine, theirs = (torch.autograd.grad(out, inputs, grad) for out in (got, want))
    assert all(same(a, b) for a, b in zip(mine, theirs, strict=True))
