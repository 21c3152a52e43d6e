"""`slice_conv`: a scalar kernel a velocity, in the reference and in Triton, and who takes it."""

import pytest
import torch
from suites import run_suite
from tolerances import TOLERANCE, error, same

import fernn
from fernn.ops.slice_conv import obstacle, reference, slice_conv


def test_kernels_equal_the_reference_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/slice_suite.py", interpreted=True)


@pytest.mark.gpu
def test_kernels_equal_the_reference_on_the_device() -> None:
    run_suite("ops/slice_suite.py", interpreted=False)


def test_slice_conv_gathers_by_the_taps_of_each_velocity() -> None:
    """out(ν, y, x) = Σ κ_ν(d, e) h(ν, y + d − 1, x + e − 1), by index arithmetic."""
    h, weight = torch.randn(2, 3, 4, 5, 6).double(), torch.randn(3, 3, 3).double()
    want = sum(
        weight[:, d, e, None, None, None] * h.roll((1 - d, 1 - e), (3, 4))
        for d in range(3)
        for e in range(3)
    )
    assert same(slice_conv(h, weight), want)


@pytest.mark.parametrize(
    ("shape", "dtype", "reason"),
    [
        ((1, 2, 8, 4, 65), torch.float32, "rows of at most 64 pixels, got 65"),
        ((1, 2, 8, 4, 64), torch.float64, "float32, float16 or bfloat16, got torch.float64"),
        ((1, 2, 8, 4, 64), torch.float32, 'CUDA device, got tensors on "cpu"'),
    ],
)
def test_obstacles_have_names(shape, dtype, reason) -> None:
    h, weight = torch.zeros(shape, dtype=dtype), torch.ones(2, 3, 3, dtype=dtype)
    assert reason in str(obstacle(h))
    with pytest.raises(ValueError, match=f'`backend` must not be "triton" here: .*{reason}'):
        slice_conv(h, weight, backend="triton")
    assert slice_conv(h, weight).shape == shape


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        ((3, 3, 3), r"`weight` must be \[V, k, k\] .* got shape \(3, 3, 3\)"),
        ((2, 3, 5), r"got shape \(2, 3, 5\)"),
        ((2, 4, 4), "`weight` must be odd, got 4"),
    ],
)
def test_kernels_that_do_not_fit_raise(weight, message) -> None:
    with pytest.raises(ValueError, match=message):
        slice_conv(torch.zeros(1, 2, 8, 4, 4), torch.zeros(weight))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slice_conv_at_the_size_of_clips(dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    h = torch.randn(4, 25, 128, 32, 32, device="cuda", requires_grad=True)
    weight = torch.randn(25, 5, 5, device="cuda", requires_grad=True)
    seen, results = torch.randn_like(h), []
    for out in (slice_conv(h.to(dtype), weight), reference.slice_conv(h.double(), weight.double())):
        results.append((out, *torch.autograd.grad(out, [h, weight], seen.to(out.dtype))))
    for mine, theirs in zip(*results, strict=True):
        assert error(mine, theirs, norm=2) < TOLERANCE[dtype]


@pytest.mark.gpu
def test_classifier_with_a_learned_transport_equals_its_plain_form() -> None:
    """In half precision ours may err as the plain form does, and not more."""
    options = {"flow": fernn.Translation(radius=2), "transport": "learned"}
    ours = fernn.Classifier(**options).cuda()
    plain = fernn.Classifier(**options, backend="lean").cuda()
    plain.load_state_dict(ours.state_dict())
    clip = torch.rand(4, 5, 1, 32, 32, device="cuda")
    weights, results = torch.randn(4, 6, device="cuda"), []
    for model, half in ((ours, True), (plain, True), (plain, False)):
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            logits = model(clip)
        loss = (logits.float() * weights).sum()
        results.append([logits, *torch.autograd.grad(loss, list(model.parameters()))])
    for mine, theirs, exact in zip(*results, strict=True):
        near = 2 * error(theirs, exact, norm=2) + TOLERANCE[torch.bfloat16]
        assert error(mine, exact, norm=2) < near
