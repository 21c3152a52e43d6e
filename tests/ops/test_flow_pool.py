"""`flow_pool`: transport and maximum over velocities, in the reference and in Triton."""

import pytest
import torch
from suites import run_suite

import fernn
from fernn.ops import flow_pool


def test_pool_carries_every_slice_before_the_maximum() -> None:
    flow = fernn.Translation(radius=1)
    h = torch.randn(2, len(flow), 3, 5, 7)
    want = flow.transport(h, 2).amax(1)
    assert torch.equal(flow_pool(h, 2 * flow.velocities), want)
    assert not torch.equal(flow_pool(h, 0 * flow.velocities), want)


def test_pool_sends_the_gradient_to_the_slice_that_won() -> None:
    h = torch.tensor([[1.0, 5.0], [2.0, 4.0]]).reshape(1, 2, 1, 2).requires_grad_()
    flow_pool(h, torch.tensor([[0], [1]])).sum().backward()
    # Slice 1 arrives as (4, 2): it wins the first pixel, slice 0 the second.
    assert h.grad.flatten().tolist() == [0.0, 1.0, 0.0, 1.0]


def test_unknown_backend_raises() -> None:
    with pytest.raises(ValueError, match="`backend` must be"):
        flow_pool(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1).long(), backend="lean")


def test_kernels_equal_the_reference_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/triton_suite.py", "pool", interpreted=True)
