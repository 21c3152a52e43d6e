"""`warp_pool`: rigid motion and maximum over velocities, in the reference and in Triton."""

import pytest
import torch
from suites import run_suite


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
