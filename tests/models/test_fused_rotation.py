"""The forecaster's GPU loop in frames that turn: where it runs, and the function it computes."""

import pytest
import torch
from suites import run_suite

import fernn
from fernn.models import _fused_rotation


def test_forecast_equals_forward_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("models/fused_rotation_suite.py", interpreted=True)


@pytest.mark.gpu
def test_forecast_equals_forward_on_the_device() -> None:
    run_suite("models/fused_rotation_suite.py", interpreted=False)


def test_named_backend_raises_without_a_device() -> None:
    model = fernn.Forecaster(flow=fernn.Rotation(count=1), hidden_channels=8, backend="triton")
    with pytest.raises(ValueError, match=r'`backend` must not be "triton" here: .*CUDA device'):
        model(torch.rand(1, 2, 1, 5, 5))


@pytest.mark.gpu
def test_named_backend_raises_where_it_cannot_run() -> None:
    flow = fernn.Rotation(count=1)
    model = fernn.Forecaster(flow=flow, hidden_channels=8, backend="triton").cuda()
    video = torch.rand(1, 2, 1, 5, 5, device="cuda")
    with pytest.raises(ValueError, match="gives no gradient to its input frames"):
        model(video.requires_grad_())
    wide = fernn.Forecaster(
        flow=flow, in_channels=6, kernel_size=5, hidden_channels=8, backend="triton"
    ).cuda()
    with pytest.raises(ValueError, match="at most 128 values under a kernel, got 150"):
        wide(torch.rand(1, 2, 6, 5, 5, device="cuda"))


@pytest.mark.gpu
def test_fits_plain_comoving_motions_alone() -> None:
    video = torch.rand(1, 2, 1, 5, 5, device="cuda")
    for options, fits in (
        ({}, True),
        ({"flow": fernn.Rotation(count=1, degrees=90, group=fernn.SE2(4))}, True),
        ({"flow": fernn.Rotation(count=1, degrees=90, group=fernn.SE2(4)), "frame": "lab"}, False),
        ({"flow": fernn.Translation(radius=1)}, False),
        ({"backend": "lean"}, False),
        ({"hidden_channels": 12}, False),
    ):
        made = {"flow": fernn.Rotation(count=1), "hidden_channels": 8, "frame": "comoving"}
        model = fernn.Forecaster(**made | options).cuda()
        assert _fused_rotation.fits(model, video) == fits, options
    assert not _fused_rotation.fits(
        fernn.Forecaster(flow=fernn.Rotation(count=1), hidden_channels=8).cuda(),
        video.clone().requires_grad_(),
    )
