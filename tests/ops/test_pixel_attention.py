"""Attention over time in one op: kernels in the interpreter and on a device, and who takes it."""

import pytest
import torch
from suites import run_suite

from fernn.ops.pixel_attention import obstacle


def test_pixel_attention_equals_its_definition_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/attention_suite.py", interpreted=True)


@pytest.mark.gpu
def test_pixel_attention_equals_its_definition_on_the_device() -> None:
    run_suite("ops/attention_suite.py", interpreted=False)


@pytest.mark.parametrize(
    ("frames", "heads", "reason"),
    [
        (torch.empty(1, 2, 1, 4), 4, "it takes images, got signals of 1 axes"),
        (torch.empty(1, 2, 8, 4, 4), 1, "at most 64 values under a kernel, and 128 for all heads"),
        (torch.empty(1, 2, 3, 4, 4), 6, "got 27 and 6 heads"),
        (torch.empty(1, 2, 1, 4, 4), 12, "got 9 and 12 heads"),
        (torch.empty(1, 2, 1, 4, 4, requires_grad=True), 4, "no gradient to its frames"),
        (torch.empty(1, 2, 1, 4, 1), 4, "at least 2 pixels a side, got (4, 1)"),
        (torch.empty(1, 2, 1, 4, 4), 4, 'CUDA device, got tensors on "cpu"'),
    ],
)
def test_obstacles_have_names(frames, heads, reason) -> None:
    why = obstacle(frames, torch.empty(3 * 36, frames.shape[2], 3, 3), heads)
    assert why is not None
    assert reason in why


def test_taps_fewer_than_a_product_takes_count_as_many() -> None:
    why = obstacle(torch.empty(1, 2, 1, 4, 4), torch.empty(3 * 64, 1, 1, 1), 64)
    assert "got 1 and 64 heads" in str(why)
