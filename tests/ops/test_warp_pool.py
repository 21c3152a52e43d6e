"""`warp_pool`: rigid motion and maximum over velocities, in the reference and in Triton."""

import pytest
import torch
from suites import run_suite

import fernn
from fernn.groups import SE2
from fernn.ops import warp_pool


def test_pool_moves_every_slice_before_the_maximum() -> None:
    flow = fernn.Rotation(count=1, degrees=45, group=SE2(8))
    h = torch.randn(2, len(flow), 8, 5, 5)
    element = flow.exp(flow.velocities, torch.tensor(2))
    want = flow.transport(h, 2).amax(1)
    assert torch.equal(warp_pool(h, element, flow.group), want)
    assert not torch.equal(warp_pool(h, 0 * element, flow.group), want)


def test_pool_sends_the_gradient_to_the_slice_that_won() -> None:
    h = torch.zeros(1, 2, 1, 3, 3)
    h[0, 0, 0, 0, 0], h[0, 1, 0, 0, 0] = 1.0, 2.0
    h.requires_grad_()
    turns = torch.tensor([[0.0, 0.0, 0.0], [180.0, 0.0, 0.0]])
    pooled = warp_pool(h, turns, SE2())
    (pooled[0, 0, 0, 0] + 3 * pooled[0, 0, 2, 2]).backward()
    # Slice 1 arrives turned: its corner wins the opposite corner, slice 0 its own.
    assert h.grad is not None
    assert h.grad[0, :, 0, 0, 0].tolist() == [1.0, 3.0]
    assert h.grad.sum().item() == 4.0


@pytest.mark.parametrize(
    ("options", "elements", "reason"),
    [
        ({"backend": "lean"}, 1, "`backend` must be"),
        ({"backend": "triton"}, 1, r'`backend` must not be "triton" here: .*CUDA device'),
        ({}, 2, r"`element` must be \[V, 3\] = \(1, 3\)"),
    ],
)
def test_wrong_arguments_raise(options: dict, elements: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        warp_pool(torch.zeros(1, 1, 1, 2, 2), torch.zeros(elements, 3), SE2(), **options)


def test_the_table_of_readers_has_room_for_all() -> None:
    """Pixels inside a square of side two, wherever it lies and however it is turned."""
    pytest.importorskip("triton")
    from fernn.ops.warp_pool.triton import MOST

    centre, angle = torch.rand(200_000, 2, 1), torch.rand(200_000, 1) * torch.pi / 2
    pixels = torch.cartesian_prod(torch.arange(-1, 3), torch.arange(-1, 3)).T
    y, x = (pixels - centre).unbind(1)
    turned = torch.stack([y * angle.cos() - x * angle.sin(), y * angle.sin() + x * angle.cos()])
    assert (turned.abs() < 1).all(0).sum(1).max() == MOST


def test_kernels_equal_the_reference_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/warp_suite.py", interpreted=True)


@pytest.mark.gpu
def test_kernels_equal_the_reference_on_the_device() -> None:
    run_suite("ops/warp_suite.py", interpreted=False)
