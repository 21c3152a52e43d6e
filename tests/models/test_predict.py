"""A prediction on a GPU: the function of pool and decoder, where it runs."""

import pytest
import torch
from suites import run_suite

import fernn
from fernn.models import _predict


def test_predict_equals_pool_and_decoder_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("models/predict_suite.py", interpreted=True)


@pytest.mark.gpu
def test_predict_equals_pool_and_decoder_on_the_device() -> None:
    run_suite("models/predict_suite.py", interpreted=False)


def test_predict_is_not_for_other_frames_or_devices() -> None:
    model = fernn.Forecaster(flow=fernn.Translation(radius=1), hidden_channels=8, mixing=1)
    assert not _predict.fits(model, model.rnn.observe(torch.rand(1, 2, 1, 5, 5)))
    model = fernn.Forecaster(flow=fernn.Rotation(4), hidden_channels=2)
    assert not _predict.fits(model, model.rnn.observe(torch.rand(1, 2, 1, 5, 5)))
