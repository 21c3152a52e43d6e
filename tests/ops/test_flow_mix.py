"""V-mixing in one op: kernels in the interpreter and on a device, and who takes it."""

import pytest
import torch
from suites import run_suite
from tolerances import TOLERANCE, error

import fernn
from fernn.ops.flow_mix import obstacle


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
        drive, kernel = torch.empty(1, 1, 64, 9, 13).cuda(), ours.rnn.layers[0].recurrent.weight
        assert obstacle(drive, kernel) is None
    for mine, theirs, exact in zip(*results, strict=True):
        near = 2 * error(theirs, exact, norm=2) + TOLERANCE[torch.bfloat16]
        assert error(mine, exact, norm=2) < near


@pytest.mark.parametrize(
    ("slices", "channels", "size", "dtype", "reason"),
    [
        (2, 64, 3, torch.bfloat16, "a drive that all ν share, got one of 2 slices"),
        (1, 64, 5, torch.bfloat16, "kernels of 3×3 taps, got 5×5"),
        (1, 32, 3, torch.bfloat16, "64 or 128 channels, got 32 to 32"),
        (1, 64, 3, torch.float32, "float16 or bfloat16, got torch.float32"),
        (1, 64, 3, torch.bfloat16, 'CUDA device, got tensors on "cpu"'),
    ],
)
def test_obstacles_have_names(slices, channels, size, dtype, reason) -> None:
    drive = torch.empty(1, slices, channels, 4, 4, dtype=dtype)
    why = obstacle(drive, torch.empty(channels, channels, 9, size, size))
    assert why is not None
    assert reason in why


@pytest.mark.parametrize(
    ("hip", "capability", "reason"),
    [
        (None, (9, 0), None),
        (None, (10, 0), "compute capability 9.0, got 10.0"),
        ("7.0", (9, 0), "NVIDIA's devices, got one of AMD's"),
    ],
)
def test_device_that_counts_as_hopper_may_be_another(
    hip, capability, reason, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.version.hip", hip)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: capability)
    monkeypatch.setattr("fernn.ops._backend.obstacle", lambda *_, **__: None)
    drive = torch.empty(1, 1, 64, 4, 4, dtype=torch.bfloat16)
    why = obstacle(drive, torch.empty(64, 64, 9, 3, 3))
    assert why is None if reason is None else reason in str(why)
