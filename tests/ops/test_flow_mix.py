"""V-mixing in one op: kernels in the interpreter and on a device, and who takes it."""

import pytest
import torch
from suites import run_suite
from tolerances import TOLERANCE, error

import fernn
from fernn.ops.flow_mix import fits


def test_flow_mix_equals_its_definition_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/mix_suite.py", interpreted=True)


@pytest.fixture
def _hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("these kernels are for Hopper")


@pytest.mark.gpu
@pytest.mark.usefixtures("_hopper")
def test_flow_mix_equals_its_definition_on_the_device() -> None:
    run_suite("ops/mix_suite.py", interpreted=False)


@pytest.mark.gpu
@pytest.mark.usefixtures("_hopper")
@pytest.mark.parametrize("batch", [2, 17])
def test_forecaster_with_mixing_equals_its_plain_form(batch: int) -> None:
    """Half precision moves signs before ReLU: ours may err as the plain form does, and not more."""
    options = {"hidden_channels": 64, "decoder_layers": 1, "mixing": 1}
    ours = fernn.Forecaster(flow=fernn.Translation(radius=2), **options).cuda()
    plain = fernn.Forecaster(flow=fernn.Translation(radius=2), **options, backend="lean").cuda()
    plain.load_state_dict(ours.state_dict())
    video = torch.rand(batch, 3, 1, 9, 13, device="cuda")
    weights = torch.randn(batch, 2, 1, 9, 13, device="cuda")
    results = []
    for model, half in ((ours, True), (plain, True), (plain, False)):
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            predicted = model(video, horizon=2)
        loss = (predicted.float() * weights).sum()
        results.append([predicted, *torch.autograd.grad(loss, list(model.parameters()))])
    with torch.autocast("cuda", torch.bfloat16):
        assert fits(torch.empty(1, 25, 64, 9, 13).cuda(), ours.rnn.layers[0].recurrent.weight)
    for mine, theirs, exact in zip(*results, strict=True):
        near = 2 * error(theirs, exact, norm=2) + TOLERANCE[torch.bfloat16]
        assert error(mine, exact, norm=2) < near


def test_fits_nothing_without_a_device() -> None:
    h, kernel = torch.empty(1, 2, 64, 4, 4, dtype=torch.bfloat16), torch.empty(64, 64, 9, 3, 3)
    assert not fits(h, kernel)
