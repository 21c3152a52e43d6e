"""The verifier must tell what is flow equivariant from what is not, and say why."""

import re

import pytest
import torch
from torch import nn

from fernn import (
    Classifier,
    ConvGRU,
    Forecaster,
    Rotation,
    Translation,
    assert_flow_equivariant,
    verify,
)
from fernn.groups import SE2
from fernn.models import SequenceForecaster
from fernn.nn import FlowEquivariant, FlowRNN, LearnedTransport
from fernn.verify import TOLERANCES, sample_video

FLOW = Translation(radius=1)


def test_verify_reports_rounding_for_the_fernn():
    report = verify(FlowRNN(1, 4, flow=FLOW), sample_video(FLOW), FLOW)
    assert report.verdict == "exact"
    assert report.worst < 1e-12
    assert len(report.velocities) == 8
    assert (0, 0) not in report.velocities
    assert report.pairs == (4, 6, 4, 6, 6, 4, 6, 4)
    assert len(report.times) >= 5


def test_verify_compares_slices_that_are_alive_and_different():
    """The theorem is not vacuous on the sample video: states are non-zero and differ across ν."""
    states, _ = FlowRNN(1, 4, flow=FLOW)(sample_video(FLOW).float())
    last = states[0, -1]
    assert last.flatten(1).norm(dim=1).min() > 0.1
    distance = torch.cdist(last.flatten(1), last.flatten(1))
    assert distance[~torch.eye(9, dtype=torch.bool)].min() > 0.01


@pytest.mark.parametrize(
    "make",
    [
        lambda: FlowRNN(1, 4, flow=Translation(radius=0)),
        lambda: FlowRNN(1, 4, flow=FLOW, transport=LearnedTransport(FLOW)),
        lambda: FlowRNN(1, 4, flow=FLOW, transport=nn.Identity()),
        lambda: ConvGRU(1, 4),
    ],
    ids=["G-RNN", "G-RNN+", "transport disabled", "ConvGRU"],
)
def test_verify_reports_large_errors_where_there_are_some(make):
    report = verify(make(), sample_video(FLOW), FLOW)
    assert report.verdict == "broken"
    assert report.error[:, -1].min() > 0.05
    with pytest.raises(AssertionError, match="not flow equivariant"):
        assert_flow_equivariant(make(), FLOW)


def test_verify_counts_truncation_in_its_own_column():
    report = verify(FlowRNN(1, 4, flow=FLOW), sample_video(FLOW), FLOW)
    assert report.everywhere.min() > 0.3
    closed = Translation(closed=(5, 5))
    report = verify(FlowRNN(1, 4, flow=closed), sample_video(closed), closed)
    assert report.everywhere.max() < 1e-12


def test_verify_truncation_is_the_norm_of_slices_without_a_partner():
    flow = Translation(velocities=[(0, 0), (0, 1)])
    model = FlowRNN(1, 2, flow=flow).double()
    video = sample_video(flow)
    report = verify(model, video, flow, velocities=[(0, 1)])
    states, _ = model(flow.act_sequence(video, (0, 1)))
    of_all = states.transpose(0, 1)
    lost = of_all[:, :, 0].flatten(1).norm(dim=1) / of_all.flatten(1).norm(dim=1)
    torch.testing.assert_close(report.everywhere[0], lost.detach())
    assert report.pairs == (1,)


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
def test_verify_runs_in_every_precision(dtype):
    report = verify(FlowRNN(1, 4, flow=FLOW), sample_video(FLOW), FLOW, dtype=dtype)
    assert report.verdict == "exact"
    assert report.dtype == dtype


def test_verify_leaves_the_model_alone():
    model = FlowRNN(1, 4, flow=FLOW, norm=True).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    verify(model, sample_video(FLOW), FLOW)
    assert model.training
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
        assert value.dtype == before[name].dtype


def test_verify_makes_a_video_of_the_channels_that_a_model_takes():
    closed = Translation(closed=(5, 5))
    model = Forecaster(flow=closed, in_channels=3, hidden_channels=4)
    for one in (model, FlowRNN(3, 4, flow=FLOW), FlowRNN(2, 4, flow=FLOW)):
        assert_flow_equivariant(one, closed if one is model else FLOW)


def test_verify_of_a_function_says_what_it_was_given():
    model = Forecaster(flow=FLOW, hidden_channels=4)
    with pytest.raises(
        TypeError, match=r"is a function, which is given torch\.float64.*Pass the module itself"
    ):
        verify(lambda v: model(v, 3), None, FLOW, start=7)
    verify(lambda v: model(v, 3), None, FLOW, start=7, dtype=torch.float32)


def test_verify_leaves_the_video_alone():
    video = sample_video(FLOW)
    before = video.clone()
    assert verify(nn.ReLU(inplace=True), video, FLOW).verdict == "exact"
    assert torch.equal(video, before)


def test_verify_survives_training():
    model = FlowRNN(1, 4, flow=FLOW)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(4):
        loss = (model(sample_video(FLOW).float())[0] - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert verify(model, sample_video(FLOW), FLOW).verdict == "exact"


def test_verify_accepts_forecasts_and_any_callable():
    closed = Translation(closed=(5, 5))
    video = sample_video(closed)
    for readout, verdict in (("transported", "exact"), ("published", "broken")):
        model = Forecaster(flow=closed, hidden_channels=4, readout=readout).double()
        report = verify(lambda v, m=model: m(v, 3), video, closed, start=video.shape[1])
        assert report.verdict == verdict
        assert report.times == (7, 8, 9)
        assert (
            verify(model, video, closed).verdict == verdict
        )  # which says itself that it forecasts
    assert_flow_equivariant(Forecaster(flow=closed, hidden_channels=4), closed)
    assert_flow_equivariant(SequenceForecaster(flow=closed, hidden_channels=4), closed)


def test_verify_accepts_values_that_should_not_change():
    closed = Translation(closed=(5, 5))
    rnn = FlowRNN(1, 4, flow=closed).double()
    invariant = verify(
        lambda v: rnn(v)[0][:, -1].amax(1).mean((-2, -1)), sample_video(closed), closed
    )
    assert invariant.verdict == "exact"
    pinned = verify(lambda v: rnn(v)[0][:, -1].amax(1)[..., 0, 0], sample_video(closed), closed)
    assert pinned.verdict == "broken"


def test_verify_wrapped_cell_on_a_rotation():
    flow = Rotation(count=1)
    assert_flow_equivariant(FlowEquivariant(ConvGRU(1, 3), flow=flow), flow)


def test_verify_of_the_last_outputs_needs_their_time():
    assert verify(lambda x: x[:, 2:], None, FLOW, start=2).verdict == "exact"
    assert verify(lambda x: x[:, 2:], None, FLOW, start=0).verdict == "broken"


def test_report_prints_a_table_and_draws_a_plot(tmp_path):
    report = verify(FlowRNN(1, 4, flow=FLOW), sample_video(FLOW), FLOW)
    text = str(report)
    assert "Translation(radius=1), float64: exact" in text
    assert "(-1, 1)" in text
    assert len(text.splitlines()) == 2 + 8
    report.plot(tmp_path / "errors.png")
    assert (tmp_path / "errors.png").read_bytes().startswith(b"\x89PNG")
    report.plot(tmp_path / "errors.svg")
    assert (tmp_path / "errors.svg").read_text().startswith("<?xml")


def test_report_shows_the_worst_dozen_of_many():
    flow = Translation(radius=2)
    text = str(verify(FlowRNN(1, 1, flow=flow), sample_video(flow), flow))
    assert "… 12 more velocities, none worse." in text


def test_assert_flow_equivariant_refuses_to_compare_nothing():
    flow = Translation(velocities=[(0, 0), (0, 1)])
    model = FlowRNN(1, 2, flow=flow)
    assert_flow_equivariant(model, flow)
    with pytest.raises(AssertionError, match="nothing was compared"):
        assert_flow_equivariant(
            FlowRNN(1, 2, flow=Translation(velocities=[(0, 1), (0, 3)])),
            Translation(velocities=[(0, 1), (0, 3)]),
        )


def test_assert_flow_equivariant_takes_a_tolerance():
    flow = Rotation(count=1)
    model = FlowRNN(1, 4, flow=flow, frame="comoving", activation="tanh")
    assert_flow_equivariant(model, flow, tolerance=0.2)
    with pytest.raises(AssertionError, match="not flow equivariant"):
        assert_flow_equivariant(model, flow, tolerance=1e-6)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda v: verify(ConvGRU(1, 2), v, Translation(radius=0)), ValueError, "other than zero"),
        (lambda v: verify(FlowRNN(1, 2, flow=Translation(2)), v, FLOW), ValueError, "model's own"),
        (lambda v: verify(lambda x: x * 0, v, FLOW), ValueError, "not all zero .*got zeros"),
        (lambda v: verify(lambda x: x / 0, v, FLOW), ValueError, "finite .*that are not.$"),
        (lambda v: verify(torch.sqrt, None, FLOW), ValueError, "may be below zero: give your own"),
        (lambda v: verify(lambda x: x[:, 2:], v, FLOW), ValueError, "`start`.* got 5 for 7 frames"),
        (lambda v: verify(lambda x: x[..., ::2], v, FLOW), ValueError, "keep the canvas.*13, 8"),
        (lambda v: verify(lambda x: x.reshape(1), None, FLOW), ValueError,
         r"`model` fails .*\(2, 7, 1, 13, 15\): .*size 2730\. Where it takes others, give one"),
        (lambda v: assert_flow_equivariant(ConvGRU(1, 2), v, FLOW), TypeError,
         r"`flow` must be a Flow, got a tensor of shape \(2, 7, 1, 13, 15\)"),
        (lambda v: verify(lambda x: x[0, 0, 0, 0], v, FLOW), ValueError, "must return"),
        (lambda v: verify(lambda x: "no", v, FLOW), TypeError, "must return a tensor"),
        (lambda v: verify("no", v, FLOW), TypeError, "`model` must be a module, or a function"),
        (lambda v: verify(ConvGRU(1, 2), v.byte(), FLOW), TypeError, r"`video.float\(\) / 255`"),
        (lambda v: verify(ConvGRU(1, 2), v, FLOW, dtype=torch.int64), ValueError, "`dtype`"),
        (lambda v: verify(ConvGRU(1, 2), v.long(), FLOW), TypeError, "`video`"),
        (lambda v: verify(ConvGRU(1, 2), v, FLOW, velocities=[(1,)]), ValueError, "2 components"),
        (lambda v: verify(ConvGRU(1, 2), v, FLOW, velocities=[]), ValueError, "must not be empty"),
        (lambda v: verify(ConvGRU(1, 2), v, FLOW, start=-3), ValueError, "`start` must .* got -3"),
        (lambda v: assert_flow_equivariant(ConvGRU(1, 2), FLOW, tolerance=-1), ValueError,
         "`tolerance` must be a number of at least 0, got -1"),
    ],
)  # fmt: skip
def test_verify_refuses_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call(sample_video(FLOW))


def test_verify_of_an_output_without_any_place():
    flow = Rotation(count=2)
    even = verify(lambda x: x.mean((-2, -1), keepdim=True).expand_as(x), None, flow)
    assert even.verdict != "broken"


def test_verify_refuses_another_flow_than_a_lifted_models_own():
    slow, flow = Rotation(count=1, degrees=9.5), Rotation(count=1, degrees=10)
    with pytest.raises(ValueError, match=r"must be the model's own .*9\.5.*, got .*10\.0"):
        verify(FlowEquivariant(ConvGRU(1, 2), slow), None, flow)


class Swapped(nn.Module):
    """Takes the batch for the velocities where it opens the two."""

    def __init__(self):
        super().__init__()
        self.gru = ConvGRU(1, 2)

    def forward(self, video):
        batch, steps = video.shape[:2]
        times = torch.arange(steps)
        copies = [FLOW.act_sequence(video, -v) for v in FLOW.velocities]
        out = self.gru(torch.stack(copies, 1).flatten(0, 1))
        out = out.unflatten(0, (len(FLOW), batch)).permute(1, 2, 0, 3, 4, 5)
        return torch.stack([FLOW.transport(out[:, t], int(t)) for t in times], 1)


def test_verify_sees_what_breaks_in_batches_alone():
    video = sample_video(FLOW)
    assert verify(Swapped(), video[:1], FLOW).verdict == "exact"
    assert verify(Swapped(), None, FLOW).verdict == "broken"


def test_verify_sees_what_breaks_on_canvases_that_are_no_squares():
    def wrapping(video):  # takes columns modulo the number of rows
        rows, columns = video.shape[-2:]
        return video[..., torch.arange(columns) % rows]

    assert verify(wrapping, sample_video(FLOW, canvas=(9, 9)), FLOW).verdict == "exact"
    assert verify(wrapping, None, FLOW).verdict == "broken"


@pytest.mark.parametrize("own", [None, 3, nn.Conv2d(1, 1, 1)])
def test_verify_of_a_model_whose_flow_is_something_else(own):
    model = ConvGRU(1, 4)
    model.flow = own
    assert verify(model, None, FLOW).verdict == "broken"


def test_verify_says_that_a_truncated_v_cannot_be_pooled():
    model = Forecaster(flow=FLOW, hidden_channels=4)
    report = verify(model, None, FLOW)
    assert report.verdict == "broken"
    hint = "V is truncated: if the output pools over it, it is exact on a closed V alone"
    assert hint in str(report)
    with pytest.raises(AssertionError, match=hint):
        assert_flow_equivariant(model, FLOW)
    assert hint not in str(verify(ConvGRU(1, 4), None, FLOW))
    closed = Translation(closed=(5, 5))
    published = Forecaster(flow=closed, hidden_channels=4, readout="published")
    assert hint not in str(verify(published, None, closed))
    torch.manual_seed(0)
    quarters = Rotation(velocities=[0, 90, 180, 270])
    turning = verify(Forecaster(flow=quarters, hidden_channels=8), None, quarters)
    assert "what follows turns along, which ordinary convolutions" in str(turning)


@pytest.mark.parametrize("noisy", [torch.rand_like, lambda x: 1e4 + 1e-10 * torch.rand_like(x)])
def test_verify_refuses_a_model_that_is_not_a_function_of_its_video(noisy):
    with pytest.raises(ValueError, match="draws random numbers, or remembers"):
        verify(lambda x: x + noisy(x), None, FLOW)


def test_report_has_no_errors_where_nothing_was_compared():
    flow = Translation(velocities=[(0, 0), (0, 1), (0, 2)])
    report = str(verify(FlowRNN(1, 4, flow=flow), None, flow, velocities=[(0, 1), (1, 0)]))
    assert re.search(r"\(0, 1\) +2 +\d", report)
    assert re.search(r"\(1, 0\) +0 +– +–", report)


def test_verify_of_a_model_with_modules_of_these_names():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.forecasts = nn.Identity(), nn.Identity()

        def forward(self, video):
            return self.features(video).square()

    flow = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
    assert verify(Net(), None, flow).verdict == "exact"
    FlowEquivariant(Net(), flow)  # which does not take it for a forecaster


def test_verify_calls_a_comparison_of_nothing_vacuous():
    flow = Translation(velocities=[(0, 1), (0, 3)])
    assert verify(FlowRNN(1, 2, flow=flow), None, flow).verdict == "vacuous"


@pytest.mark.parametrize(
    ("video", "message"),
    [
        (torch.rand(1, 1, 1, 7, 7), "at least 2 frames"),
        (torch.ones(1, 4, 1, 7, 7), "change when it moves"),
    ],
)
def test_verify_refuses_a_video_on_which_every_model_passes(video, message):
    with pytest.raises(ValueError, match=message):
        verify(FlowRNN(1, 2, flow=Translation(radius=0)), video, FLOW)


@pytest.mark.parametrize("dtype", list(TOLERANCES), ids=str)
def test_verify_sees_a_broken_model_in_every_precision(dtype):
    still = Translation(radius=0)
    assert verify(FlowRNN(1, 4, flow=still), None, FLOW, dtype=dtype).verdict == "broken"
    broken = FlowRNN(1, 4, flow=FLOW, transport=nn.Identity())
    assert verify(broken, None, FLOW, dtype=dtype).verdict == "broken"


def test_verify_is_not_fooled_by_a_large_constant():
    rnn = FlowRNN(1, 4, flow=Translation(radius=0)).double()
    for constant in (1.0, 1e6, 1e13):
        assert verify(lambda v, c=constant: rnn(v)[0] + c, None, FLOW).verdict == "broken"
    closed = Translation(closed=(5, 5))
    for dtype in (torch.float64, torch.float32):
        report = verify(Classifier(hidden_channels=4), None, closed, dtype=dtype)
        assert report.verdict == "broken"


@pytest.mark.parametrize("flow", [FLOW, Translation(closed=(5, 5))], ids=repr)
def test_verify_sees_what_breaks_only_below_zero(flow):
    """A G-RNN of what is below zero; above, each frame for itself."""
    rnn = FlowRNN(1, 4, flow=Translation(radius=0)).double()
    assert verify(lambda v: v.clamp(min=0) + 0 * v, None, flow).verdict == "exact"

    def below(video):
        return video.clamp(min=0) + rnn(video.clamp(max=0))[0][:, :, 0, :1]

    assert verify(below, None, flow).verdict == "broken"
    assert verify(below, sample_video(flow, steps=3), flow).verdict == "broken"


def test_verify_runs_in_eval_mode():
    model = FlowRNN(1, 4, flow=FLOW, norm=True).train()
    assert verify(model, None, FLOW).verdict == "exact"


def test_verify_fails_on_nan():
    calls = []

    def sour(video):
        calls.append(video)
        return video if len(calls) <= 2 else video * torch.nan

    assert verify(sour, None, FLOW).verdict == "broken"
    calls.clear()
    with pytest.raises(AssertionError, match="not flow equivariant"):
        assert_flow_equivariant(sour, FLOW, tolerance=1e-6)


def test_verify_counts_wrong_slices_everywhere():
    broken = verify(FlowRNN(1, 4, flow=FLOW, transport=nn.Identity()), None, FLOW)
    right = verify(FlowRNN(1, 4, flow=FLOW), None, FLOW)
    assert (broken.everywhere[:, -1] > right.everywhere[:, -1] - 0.2).all()
    closed = Translation(closed=(5, 5))
    broken = verify(FlowRNN(1, 4, flow=closed, transport=nn.Identity()), None, closed)
    assert broken.everywhere[:, 1:-2].min() > 0.05


def test_verify_of_a_wrapped_model_on_a_flow_with_orientations():
    """The wrapper's channels are plain, whatever group its flow has."""
    flow = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
    assert_flow_equivariant(FlowEquivariant(ConvGRU(1, 4), flow), flow)


def test_verify_whatever_the_default_device_is():
    model, turn = FlowRNN(1, 2, flow=FLOW), Rotation(count=1)
    turning = FlowRNN(1, 2, flow=turn, frame="comoving")
    video = sample_video(FLOW)
    with torch.device("meta"):
        assert verify(model, None, FLOW).verdict == "exact"
        assert verify(model, video, FLOW).verdict == "exact"
        assert verify(turning, None, turn).verdict == "interpolated"
