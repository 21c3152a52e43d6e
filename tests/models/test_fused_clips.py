"""The classifier's GPU loop: the function of `Classifier.forward`, where and when it runs."""

import pytest
import torch
from suites import run_suite

import fernn
from fernn.models import _fused_clips


def test_classify_equals_forward_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("models/clips_suite.py", interpreted=True)


@pytest.mark.gpu
def test_classify_equals_forward_on_the_device() -> None:
    run_suite("models/clips_suite.py", interpreted=False)


def test_named_backend_raises_without_a_device() -> None:
    model = fernn.Classifier(flow=fernn.Translation(radius=1), hidden_channels=8, backend="triton")
    with pytest.raises(ValueError, match=r'`backend` must not be "triton" here: .*CUDA device'):
        model(torch.rand(1, 2, 1, 5, 5))


@pytest.mark.gpu
def test_fits_plain_recurrences_alone() -> None:
    clip, flow = torch.rand(1, 2, 1, 5, 5, device="cuda"), fernn.Translation(radius=1)
    for options, fits in (
        ({}, True),
        ({"frame": "comoving"}, False),
        ({"norm": True}, True),
        ({"transport": "learned"}, True),
        ({"transport": "learned", "norm": True}, False),
        ({"backend": "lean"}, False),
        ({"hidden_channels": 12}, False),
    ):
        model = fernn.Classifier(**{"flow": flow, "hidden_channels": 8} | options).cuda()
        assert _fused_clips.fits(model, clip) == fits, options
