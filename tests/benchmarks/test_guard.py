"""What the benchmark refuses to compare: forms that are not one function, though losses agree."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F

from benchmarks.gpu import guard
from benchmarks.gpu.row import Row
from benchmarks.published import PublishedForecaster
from benchmarks.published_clips import PublishedClassifier
from benchmarks.published_mixing import PublishedMixingForecaster
from benchmarks.published_rotation import PublishedRotationForecaster
from fernn import SE2, Classifier, Forecaster, Rotation, Translation

HORIZON = 3
MOVING = Translation(radius=1)


class _Changed(Forecaster):
    """A forecaster with another W than its weights say."""

    def __init__(self, change, **options):
        super().__init__(**options)
        self.change = change

    def forward(self, video, horizon=HORIZON):
        made = self.rnn.kernels
        self.rnn.kernels = lambda: [(inner, self.change(kernel)) for inner, kernel in made()]
        try:
            return super().forward(video, horizon)
        finally:
            del self.rnn.kernels


def _videos(batch):
    random = torch.Generator().manual_seed(0)
    video = torch.rand(batch, 3 + HORIZON, 1, 8, 8, generator=random)
    video *= torch.rand(video.shape, generator=random) < 0.2
    return video[:, :3], video[:, 3:]


def _loss(model, past, future):
    return F.mse_loss(model(past, horizon=HORIZON).float(), future)


def _row(ours, published=PublishedForecaster.of, **options):
    made = {"sample": _videos, "loss": _loss, "flops": 1.0, "needs": "fernn.forecast", "checked": 2}
    return Row(ours=ours, published=published, **made | options)


def _options(**options):
    return {
        "flow": MOVING,
        "hidden_channels": 8,
        "decoder_layers": 2,
        "readout": "published",
    } | options


def _reasons(row):
    """The refusals, but for the operator, which a CPU does not run."""
    torch.manual_seed(0)
    ours = row.ours()
    record = guard.check(row, row.published(ours), ours)
    return guard.refusals(record | {"operators": {f"{row.needs}.default": 1}}, row.needs)


def _moving(model):
    """The published form with the velocities that `model` should have."""
    other = Forecaster(**_options())
    other.load_state_dict(model.state_dict())
    return PublishedForecaster.of(other)


def _clips(batch):
    random = torch.Generator().manual_seed(0)
    return torch.randn(batch, 4, 1, 8, 8, generator=random), torch.arange(batch) % 6


def _label_loss(model, clip, label):
    return F.cross_entropy(model(clip).float(), label)


TURNING = {"flow": Rotation(count=1, degrees=90, group=SE2(4)), "hidden_channels": 2}
ROWS = {
    "forecast": _row(lambda: Forecaster(**_options())),
    "mixing": _row(lambda: Forecaster(**_options(mixing=1)), PublishedMixingForecaster.of),
    "rotation": _row(
        lambda: Forecaster(**_options(**TURNING, frame="comoving")),
        PublishedRotationForecaster.of,
        same=copy.deepcopy,
    ),
    "clips": _row(
        lambda: Classifier(flow=MOVING, hidden_channels=8),
        PublishedClassifier.of,
        sample=_clips,
        loss=_label_loss,
        checked=4,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_one_function_in_two_forms_is_compared(name):
    assert _reasons(ROWS[name]) == []


WRONG = {
    "W = 0": _row(lambda: _Changed(torch.zeros_like, **_options())),
    "W transposed": _row(lambda: _Changed(lambda w: w.transpose(0, 1), **_options())),
    "W flipped": _row(lambda: _Changed(lambda w: w.flip(2, 3), **_options())),
    "G-RNN instead of FERNN": _row(lambda: Forecaster(**_options(flow=None)), _moving),
    "its gradient cut": _row(lambda: _Changed(lambda w: w.detach() + 0 * w, **_options())),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_function_is_refused(name):
    reasons = _reasons(WRONG[name])
    for label in ("float32", "as timed"):
        assert any("recurrent.weight differs" in r and label in r for r in reasons)
        predicted = any("the prediction differs" in r and label in r for r in reasons)
        assert predicted == (name != "its gradient cut")


def test_a_parameter_that_one_form_lacks_is_refused():
    class More(Forecaster):
        def __init__(self, **options):
            super().__init__(**options)
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, video, horizon=HORIZON):
            return self.scale * super().forward(video, horizon)

    def published(model):
        plain = Forecaster(**_options())
        plain.load_state_dict({k: v for k, v in model.state_dict().items() if k != "scale"})
        return PublishedForecaster.of(plain)

    reasons = _reasons(_row(lambda: More(**_options()), published))
    assert {r.partition(" differs by inf")[0] for r in reasons} == {"the gradient of scale"}


def test_the_form_that_is_timed_has_the_loss_where_another_stands_for_it():
    row = ROWS["rotation"]

    def broken(model):
        form = row.published(model)
        form.degrees = [0.0 for _ in form.degrees]
        for conv in form.decoder:
            torch.nn.init.ones_(conv.bias)
        return form

    (reason,) = _reasons(dataclasses.replace(row, published=broken))
    assert "losses differ in published as timed" in reason


@pytest.mark.parametrize("change", [torch.zeros_like, lambda w: w.transpose(0, 1)])
def test_a_classifier_with_another_w_is_refused(change):
    class Changed(Classifier):
        def forward(self, clip):
            made = self.rnn.kernels
            self.rnn.kernels = lambda: [(inner, change(kernel)) for inner, kernel in made()]
            try:
                return super().forward(clip)
            finally:
                del self.rnn.kernels

    row = ROWS["clips"]
    wrong = _row(
        lambda: Changed(flow=MOVING, hidden_channels=8),
        row.published,
        sample=_clips,
        loss=_label_loss,
        checked=4,
    )
    assert any("recurrent.weight differs" in reason for reason in _reasons(wrong))


def test_a_model_is_left_as_it_was():
    model = ROWS["clips"].ours()
    before = copy.deepcopy(model.state_dict())
    guard.errors(ROWS["clips"], model)
    guard.operators(ROWS["clips"], model)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_operators_are_those_of_the_batch_that_is_compared():
    seen = []

    def sample(batch):
        seen.append(batch)
        return _videos(batch)

    row = _row(ROWS["forecast"].ours, sample=sample)
    guard.operators(row, row.ours())
    assert seen == [row.checked]


def test_half_precision_is_held_to_what_it_costs_the_published_form():
    same = {"float32": {"x": 0.0}, "as timed": {"x": 0.15}, guard.YARDSTICK: {"x": 0.01}}
    record = {"operators": {"fernn.forecast.default": 1}, "losses": {}, "errors": same}
    (reason,) = guard.refusals(record, "fernn.forecast")
    assert reason == "x differs by 1.5e-01 in as timed, more than 5.0e-02"
    same[guard.YARDSTICK]["x"] = 0.1
    assert guard.refusals(record, "fernn.forecast") == []
    same[guard.YARDSTICK]["x"], same["as timed"]["x"] = 10.0, 0.4
    assert "more than 3.0e-01" in guard.refusals(record, "fernn.forecast")[0]
    same["as timed"]["x"] = float("nan")
    assert guard.refusals(record, "fernn.forecast")
