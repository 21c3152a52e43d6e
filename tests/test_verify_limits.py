"""Where interpolation, slow motion or rounding hides a break, the verifier says so."""

from functools import partial

import pytest
import torch
from torch import nn

from fernn import (
    Classifier,
    ConvGRU,
    Forecaster,
    RigidMotion,
    Rotation,
    Translation,
    assert_flow_equivariant,
    verify,
)
from fernn._comparison import Comparison, sharpness
from fernn._report import allowed
from fernn.groups import SE2
from fernn.nn import CausalConv, Cell, FlowEquivariant, FlowRNN
from fernn.verify import sample_video, sharp_video

FLOW = Translation(radius=1)


@pytest.mark.parametrize("frame", ["lab", "comoving"])
def test_verify_separates_interpolation_from_failure(frame):
    flow = Rotation(count=2, group=SE2(36))
    good = verify(FlowRNN(1, 1, flow=flow, frame=frame), sample_video(flow), flow)
    assert good.verdict == "interpolated"
    assert 1e-3 < good.worst < 0.1
    assert good.interpolation.max() > good.worst
    still = Rotation(count=0, group=SE2(36))
    bad = verify(FlowRNN(1, 1, flow=still, frame=frame), sample_video(flow), flow)
    assert bad.verdict == "broken"


def test_verify_of_a_forecast_that_fades_is_not_of_its_rounding():
    """Along ten frames it comes near a constant, and what is left of it drowns in rounding."""
    closed = Translation(closed=(5, 5))
    model = Forecaster(flow=closed, hidden_channels=16)
    spread = model(sample_video(closed).float()).std((-2, -1)).flatten()
    assert spread[-1] < spread[0] / 100
    assert_flow_equivariant(model, closed)


def test_verify_does_not_conclude_from_a_video_that_interpolation_blurs():
    """On white noise a turn there and back loses more than any model can get wrong."""
    flow, noise = Rotation(count=2), torch.rand(1, 5, 1, 8, 8)
    model = FlowEquivariant(ConvGRU(1, 4), flow)
    assert verify(model, noise, flow).verdict == "inconclusive"
    with pytest.raises(
        AssertionError, match=r"is not known.*\n[^€]*Nothing can be concluded: moving the video"
    ):
        assert_flow_equivariant(model, flow, noise)
    assert verify(model, None, flow).verdict == "interpolated"
    assert verify(ConvGRU(1, 4), noise, flow).verdict in ("inconclusive", "broken")
    assert verify(ConvGRU(1, 4), None, flow).verdict == "broken"


def test_verify_sees_a_break_where_nothing_blurs_beside_one_that_does():
    """A quarter turn is exact, whatever another angle loses."""
    flow, noise = Rotation(velocities=[0, 90, 10]), torch.rand(1, 5, 1, 8, 8)
    for model in (ConvGRU(1, 4), FlowRNN(1, 4, flow=Rotation(count=0))):
        report = verify(model, noise, flow)
        assert report.interpolation[0].max() < 1e-12 < 0.1 < report.interpolation[1].max()
        assert report.error[1].max() < report.interpolation.max()  # at 10° nothing can be said
        assert report.verdict == "broken"
    assert verify(FlowEquivariant(ConvGRU(1, 4), flow), noise, flow).verdict == "inconclusive"


class Biased(Cell):
    """An ordinary recurrence, whose output is not zero where its video is."""

    def __init__(self):
        super().__init__()
        self.u, self.w = (nn.Conv2d(c, 4, 3, padding="same") for c in (1, 4))

    def init_state(self, frame):
        return (frame.new_zeros(len(frame), 4, *frame.shape[2:]),)

    def step(self, frame, state):
        return (torch.tanh(self.u(frame) + self.w(state[0])),)


@pytest.mark.parametrize(
    "flow",
    [Rotation(count=2), RigidMotion([(0, 0, 0), (0, 0.5, 0), (0, -0.5, 0)])],
    ids=["turns", "half pixels"],
)
def test_verify_compares_what_no_flow_moves_in_from_outside(flow):
    """A bias fills the corners, which a turn cuts off: that is no fault of the model's."""
    model = Biased()
    assert verify(FlowEquivariant(model, flow), None, flow).verdict == "interpolated"
    assert verify(model, None, flow).verdict == "broken"


@pytest.mark.parametrize("step", [0.5, 1.0])
def test_verify_of_motion_to_one_side(step):
    """There and back both bring in what is outside, whichever of them is in V."""
    flow = RigidMotion([(0, 0, 0), (0, step, 0)])
    for module in (CausalConv(1, 4), ConvGRU(1, 4)):
        good = verify(FlowEquivariant(module, flow), None, flow)
        assert good.verdict in ("exact", "interpolated")
        assert good.interpolation.max() < (1e-6 if step == 1 else 0.1)
        assert verify(ConvGRU(1, 4), None, flow).verdict == "broken"


@pytest.mark.parametrize("size", [3, 33])
def test_verify_refuses_a_video_of_which_nothing_stays_inside(size):
    video = torch.zeros(1, 5, 1, size, size)
    video[..., 1 * (size > 3), 1 * (size > 3)] = 1  # in a corner, which turns away
    with pytest.raises(ValueError, match="must have more of what moves away from its border"):
        verify(lambda x: x.cumsum(1), video, Rotation(count=2))
    with pytest.raises(ValueError, match="must have more of what moves away from its border"):
        verify(ConvGRU(1, 4), torch.rand(1, 5, 1, 3, 3), RigidMotion([(0, 0, 0), (0, 0.9, 0)]))


def test_verify_sees_a_late_break_of_what_fades():
    fading = 0.5 ** torch.arange(12.0).reshape(-1, 1, 1, 1)

    def model(video):
        out = video * fading.to(video)
        return torch.cat([out[:, :10], out[:, 10:].flip(-1)], 1)

    video = sample_video(FLOW, steps=12)
    for dtype in (torch.float64, torch.float32):
        assert verify(model, video, FLOW, dtype=dtype).verdict == "broken"


def test_verify_counts_errors_by_a_tenth_of_the_most_that_varied():
    def model(video, share):
        return torch.cat([video[:, :1], share * video[:, 1:].flip(-1)], 1)

    video = sample_video(FLOW, steps=2)
    whole, half, faint = (
        verify(partial(model, share=share), video, FLOW).error[:, 1] for share in (1, 0.5, 0.01)
    )
    torch.testing.assert_close(half, whole)
    torch.testing.assert_close(faint, 0.1 * whole, rtol=0.02, atol=0)  # frame 0 varies as much


def test_allowed_errors_are_rough_from_where_interpolation_blurs():
    cost = torch.tensor([[0.05, 0.2, 0.2], [0.04, 0.04, 0.05], [0, 0, 0]])
    want = torch.tensor([[0.05, 0.4, 0.4], [0.04, 0.4, 0.4], [0, 0, 0]])
    torch.testing.assert_close(allowed(cost, 0.0), want)


def test_verify_does_not_conclude_from_a_blur_of_a_fifth():
    flow = Rotation(count=2, degrees=20)
    frames = sample_video(flow, canvas=(49, 49), seed=2)

    def of_each(video):
        return torch.stack([video.sum((1, 2, 3, 4)), video.square().sum((1, 2, 3, 4))], 1)

    report = verify(lambda v: of_each(v[:, 2:]), frames, flow)
    assert 0.1 < report.interpolation.max() < 0.3
    assert report.verdict == "inconclusive"


def test_verify_in_half_precision_does_not_call_interpolation_exact():
    flow = Rotation(count=1)

    def leaky(video):
        states = [video[:, 0]]
        for frame in video[:, 1:].unbind(1):
            states.append(0.04 * states[-1] + frame)
        return torch.stack(states, 1)

    report = verify(leaky, None, flow, dtype=torch.float16)
    assert report.worst < report.tolerance
    assert report.verdict == "interpolated"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_verify_does_not_conclude_from_what_half_precision_rounds_away(dtype):
    torch.manual_seed(0)
    model = Classifier(flow=FLOW, hidden_channels=4)
    assert verify(model, None, FLOW).verdict == "broken"  # V is truncated
    report = verify(model, None, FLOW, dtype=dtype)
    assert report.worst < report.tolerance
    assert report.verdict == "inconclusive"
    assert "rounds it away. Use a wider dtype." in str(report)


@pytest.mark.parametrize(
    "flow", [Rotation(count=1, degrees=0.5), RigidMotion([(0, 0, 0), (0, 0, 0.1)])]
)
def test_verify_does_not_conclude_from_motion_too_slow_to_tell(flow):
    torch.manual_seed(0)
    report = verify(FlowEquivariant(ConvGRU(1, 4), flow), None, flow)
    assert report.verdict == "inconclusive"
    assert "a leaky sum of the frames, which is not flow equivariant, passes" in str(report)
    small = sample_video(flow)  # where even models that are not equivariant would pass
    assert verify(ConvGRU(1, 4), small, flow).verdict == "inconclusive"
    with pytest.raises(AssertionError, match="is not known"):
        assert_flow_equivariant(FlowRNN(1, 4, flow=Translation(radius=0)), flow, small)


@pytest.mark.parametrize(
    "flow", [Rotation(count=1, degrees=2), RigidMotion([(0, 0, 0), (0, 0, 0.25)])]
)
def test_verify_takes_a_larger_video_where_motion_is_slow(flow):
    torch.manual_seed(0)
    assert verify(FlowEquivariant(ConvGRU(1, 4), flow), None, flow).verdict == "interpolated"
    assert verify(FlowRNN(1, 16, flow=Translation(radius=0)), None, flow).verdict == "broken"
    assert verify(ConvGRU(1, 4), None, flow).verdict == "broken"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("degrees", [0.5, 2])
def test_verify_in_half_precision_does_not_take_slow_motion_for_rounding(degrees, dtype):
    torch.manual_seed(0)
    flow = Rotation(count=1, degrees=degrees)
    verdict = verify(ConvGRU(1, 4), None, flow, dtype=dtype).verdict
    assert verdict in ("inconclusive", "broken")


def test_verify_is_not_sharp_by_velocities_that_compare_nothing():
    torch.manual_seed(0)
    flow, gru = Rotation(count=1, degrees=0.5), ConvGRU(1, 4).double()

    def copies(video):  # of what no velocity moves, as if lifted
        return gru(video)[:, :, None].expand(-1, -1, 3, -1, -1, -1)

    report = verify(copies, sample_video(flow), flow, velocities=[0.5, 30.0])
    assert report.pairs == (2, 0)
    assert report.verdict == "inconclusive"


def test_verify_of_values_under_motion_that_interpolates():
    flow = Rotation(count=2, degrees=20)
    frames = sample_video(flow, canvas=(49, 49))

    def of_each(video):  # no motion changes the light of a frame
        return torch.stack([video.sum((1, 2, 3, 4)), video.square().sum((1, 2, 3, 4))], 1)

    def of_all(video):
        return video.sum(1).square().sum((2, 3))

    assert verify(lambda v: of_each(v[:, 2:]), frames, flow).verdict == "interpolated"
    assert verify(of_all, frames, flow).verdict == "broken"


def test_verify_of_values_needs_a_control_of_its_own():
    """What tells sequences apart may be too slow for values."""
    flow = Rotation(count=1)
    video = sample_video(flow).abs()
    good = FlowEquivariant(ConvGRU(1, 4), flow)
    assert verify(good, video, flow).verdict == "interpolated"
    assert verify(lambda v: v[:, -1].sum((2, 3)), video, flow).verdict == "inconclusive"


def test_verify_takes_a_larger_video_where_motion_is_fast():
    flow = RigidMotion([(0, 0, 0), (0, 0, 1.5)])
    torch.manual_seed(0)
    assert verify(FlowEquivariant(ConvGRU(1, 4), flow), None, flow).verdict == "interpolated"
    assert verify(ConvGRU(1, 4), None, flow).verdict == "broken"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_verify_of_values_that_ignore_the_order_of_frames(dtype):
    """Backwards nothing changes, so another video says how much they vary."""
    encoder = nn.Conv2d(1, 4, 3, padding=1, padding_mode="circular")

    def of_each(video):
        features = encoder.to(video)(video.flatten(0, 1)).relu().mean((2, 3))
        return features.unflatten(0, video.shape[:2]).mean(1)

    assert verify(of_each, None, FLOW, dtype=dtype).verdict == "exact"
    assert verify(lambda v: v.sum(1).square().mean((2, 3)), None, FLOW).verdict == "broken"


@pytest.mark.parametrize("flow", [FLOW, Rotation(count=1)], ids=["exact", "turns"])
def test_verify_of_a_video_whose_first_frame_is_black(flow):
    """There a sigmoid gives one grey, which cannot vary; what comes later can."""
    video = sample_video(flow).abs()
    video[:, 0] = 0
    frame = "lab" if flow.exact else "comoving"
    for still, verdict in ((flow, "exact" if flow.exact else "interpolated"), (None, "broken")):
        torch.manual_seed(0)
        still = Translation(radius=0) if still is None else still
        model = FlowRNN(1, 4, flow=still, frame=frame, activation=torch.sigmoid)
        assert verify(model, video, flow).verdict == verdict


def test_interpolation_that_cancels_in_a_value_is_not_taken_for_none():
    """One number may be the same there and back by chance: the largest cost counts for all."""
    flow = RigidMotion([(0, 0, 0), (0, 0.5, 0), (0, -0.5, 0)])
    video, tried = sample_video(flow), flow.velocities[1:]
    base = torch.ones(1, 1, dtype=torch.double)
    answers = iter([base, base, base + 0.5, base])  # moved, moved, and there and back
    compare = Comparison(
        flow, tried, base, video.shape[3:], 0, False, torch.float64, torch.zeros_like(base)
    )
    _, _, cost = compare.measure(lambda _: next(answers), video)
    assert cost.flatten().tolist() == [0.5, 0.5]


def test_a_video_that_is_made_tells_models_apart_with_something_to_spare():
    flow = Rotation(count=1, degrees=7.5)
    tried, usual = flow.velocities[[0, 2]], sample_video(flow)
    assert 1 < sharpness(flow, tried, usual, torch.float64) < 2
    assert sharp_video(flow, tried, torch.float64).shape[3:] > usual.shape[3:]
    assert sharp_video(flow, tried, torch.float64, channels=2, steps=6).shape[1:3] == (6, 2)


def test_verify_interpolates_where_the_velocities_tried_do():
    quarters = Rotation(velocities=[0, 90, 180, 270])
    assert verify(torch.square, None, quarters).verdict == "exact"
    report = verify(torch.square, None, quarters, velocities=[10.0])
    assert report.verdict == "interpolated"
    assert report.interpolation.max() > 0

    def uneven(x):
        return x * torch.arange(x.shape[-1], dtype=x.dtype)

    assert verify(uneven, None, quarters, velocities=[10.0]).verdict == "broken"


def test_verify_allows_for_interpolation_also_after_a_quarter_turn():
    """Nine turns of 10° are exact again, but what was lost on the way stays lost."""
    flow = Rotation(count=1, group=SE2(36))
    video = sample_video(flow, steps=11, canvas=(25, 25))
    assert verify(FlowRNN(1, 1, flow=flow), video, flow).verdict != "broken"
