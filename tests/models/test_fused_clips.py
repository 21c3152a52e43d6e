"""The classifier's GPU loop: the function of `Classifier.forward`, where and when it runs."""

import pytest
import torch
from graphs import replayed
from suites import run_suite
from tolerances import TOLERANCE, error

import fernn
from fernn.models import _fused_clips
from fernn.ops import _backend


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


def test_fits_plain_recurrences_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_backend, "obstacle", lambda *_, **__: None)  # as where there is a device
    clip, flow = torch.rand(1, 2, 1, 5, 5), fernn.Translation(radius=1)
    for options, fits in (
        ({}, True),
        ({"frame": "comoving"}, False),
        ({"norm": True}, True),
        ({"transport": "learned"}, True),
        ({"transport": "learned", "norm": True}, True),
        ({"backend": "lean"}, False),
        ({"hidden_channels": 12}, False),
    ):
        model = fernn.Classifier(**{"flow": flow, "hidden_channels": 8} | options)
        assert _fused_clips.fits(model, clip) == fits, options


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": True},
        {"transport": "learned"},
        {"transport": "learned", "norm": True},
    ],
)
def test_training_step_is_captured_in_a_graph(options: dict) -> None:
    torch.manual_seed(1)
    model = fernn.Classifier(flow=fernn.Translation(radius=1), hidden_channels=16, **options).cuda()
    clip, labels = torch.rand(8, 3, 1, 8, 8).cuda(), torch.arange(8).cuda() % 6
    assert _fused_clips.fits(model, clip)

    def gradients() -> tuple[torch.Tensor, ...]:
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            logits = model(clip)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        return torch.autograd.grad(loss, list(model.parameters()))

    near = TOLERANCE[torch.bfloat16]
    assert all(error(mine, theirs, norm=2) < near for mine, theirs in replayed(gradients))
