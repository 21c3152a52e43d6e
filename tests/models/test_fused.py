"""The forecaster's GPU loop: the function of `Forecaster.forward`, where and when it runs."""

import pytest
import torch
from graphs import replayed
from suites import run_suite
from tolerances import TOLERANCE, error

import fernn
from fernn.models import _fused


def test_forecast_equals_forward_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("models/fused_suite.py", interpreted=True)


@pytest.mark.gpu
def test_forecast_equals_forward_on_the_device() -> None:
    run_suite("models/fused_suite.py", interpreted=False)


def test_named_backend_raises_without_a_device() -> None:
    model = fernn.Forecaster(flow=fernn.Translation(radius=1), hidden_channels=8, backend="triton")
    with pytest.raises(ValueError, match=r'`backend` must not be "triton" here: .*CUDA device'):
        model(torch.rand(1, 2, 1, 5, 5))


@pytest.mark.gpu
def test_fits_plain_translations_alone() -> None:
    video, flow = torch.rand(1, 2, 1, 5, 5, device="cuda"), fernn.Translation(radius=1)
    for options, fits in (
        ({}, True),
        ({"frame": "comoving"}, False),
        ({"mixing": 1}, False),
        ({"backend": "lean"}, False),
        ({"hidden_channels": 12}, False),
    ):
        model = fernn.Forecaster(**{"flow": flow, "hidden_channels": 8} | options).cuda()
        assert _fused.fits(model, video) == fits, options
    model = fernn.Forecaster(flow=flow, hidden_channels=8).cuda()
    assert not _fused.fits(model, video[:, :1])
    assert not _fused.fits(model, video.clone().requires_grad_())


@pytest.mark.gpu
@pytest.mark.parametrize("readout", ["published", "transported"])
@pytest.mark.parametrize(("channels", "dtype"), [(8, torch.float32), (128, torch.bfloat16)])
def test_training_step_is_captured_in_a_graph(
    readout: str, channels: int, dtype: torch.dtype
) -> None:
    """Nothing waits for the device, forward or back, and the replay gives the same gradients.

    The larger model has the channels, batch and canvas that the kernel for Hopper takes.
    """
    model = fernn.Forecaster(
        flow=fernn.Translation(radius=1),
        hidden_channels=channels,
        decoder_layers=1,
        readout=readout,
    ).cuda()
    video, target = torch.rand(64, 3, 1, 8, 8).cuda(), torch.rand(64, 2, 1, 8, 8).cuda()
    assert _fused.fits(model, video)

    def gradients() -> tuple[torch.Tensor, ...]:
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            predicted = model(video, horizon=2)
        loss = (predicted.float() - target).square().mean()
        return torch.autograd.grad(loss, list(model.parameters()))

    near = 1e-3 if dtype == torch.float32 else TOLERANCE[dtype]
    assert all(error(mine, theirs, norm=2) < near for mine, theirs in replayed(gradients))
