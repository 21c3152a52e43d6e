"""`flow_sigma`, the end of a step with batch-norm: in Triton's interpreter, and on a device."""

import pytest
from suites import run_suite


def test_flow_sigma_equals_plain_torch_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/sigma_suite.py", interpreted=True)


@pytest.mark.gpu
def test_flow_sigma_equals_plain_torch_on_the_device() -> None:
    run_suite("ops/sigma_suite.py", interpreted=False)
