"""The GRU's step in one op: kernels in the interpreter and on a device, and who takes it."""

import pytest
import torch
from suites import run_suite

from fernn.ops.gru_step import obstacle


def test_gru_step_equals_its_definition_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/gru_suite.py", interpreted=True)


@pytest.mark.gpu
def test_gru_step_equals_its_definition_on_the_device() -> None:
    run_suite("ops/gru_suite.py", interpreted=False)


@pytest.mark.parametrize(
    ("frame", "channels", "reason"),
    [
        (torch.empty(1, 1, 4), 8, "it takes images, got signals of 1 axes"),
        (torch.empty(1, 1, 4, 4), 12, "a multiple of 8 channels, got 12"),
        (torch.empty(1, 8, 4, 4), 8, "at most 64 values under a kernel, got 72"),
        (torch.empty(1, 1, 4, 4, requires_grad=True), 8, "no gradient to its frames"),
        (torch.empty(1, 1, 4, 1), 8, r"at least 2 pixels a side, got (4, 1)"),
        (torch.empty(1, 1, 4, 4), 8, 'CUDA device, got tensors on "cpu"'),
    ],
)
def test_obstacles_have_names(frame, channels, reason) -> None:
    why = obstacle(frame, torch.empty(channels, frame.shape[1] + channels, 3, 3))
    assert why is not None
    assert reason in why
