"""Pretrained weights are as flow equivariant as the day they were drawn, and a G-RNN is not."""

import json
from pathlib import Path

import pytest
import torch

from fernn import Forecaster, Rotation, Translation
from fernn.experiments import pretrained as verification
from fernn.experiments.pretrained import canvas, verified
from fernn.experiments.recipes import find
from fernn.models import pretrained, pretrained_record

RECORD = Path(__file__).parents[2] / "results" / "pretrained-verification.json"


@pytest.mark.parametrize(
    ("name", "states", "forecast"),
    [
        ("translating-mnist/fernn-v1", "exact", "exact"),
        ("translating-mnist/grnn", "broken", "broken"),
    ],
)
def test_verified_gives_the_verdicts_of_the_theory(name, states, forecast, monkeypatch):
    monkeypatch.setattr(verification, "pretrained", lambda: (name,))
    (found,) = verified()
    assert found.as_expected
    assert found.states.verdict == states
    assert found.forecast.verdict == forecast
    assert (found.states.worst < 1e-12) == (states == "exact")
    assert len(found.states.times) == 7
    assert found.row()["sha256"] == pretrained_record(name)["weights"]["sha256"]


def test_canvas_is_that_of_training_where_the_flow_interpolates():
    assert canvas(find("table1/rotation/fernn-v4")) == (40, 40)
    assert canvas(find("table1/translation/fernn-v2")) is None


def test_verification_record_is_of_the_weights_that_are_shipped():
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    rows = {row["name"]: row for row in record["rows"]}
    assert tuple(rows) == pretrained()
    verdicts = {name: (row["verdict"], row["forecast verdict"]) for name, row in rows.items()}
    assert verdicts == {
        "rotating-mnist/fernn-v4": ("interpolated", "broken"),
        "translating-mnist/fernn-v1": ("exact", "exact"),
        "translating-mnist/fernn-v2": ("exact", "exact"),
        "translating-mnist/grnn": ("broken", "broken"),
    }
    for name, row in rows.items():
        assert row["sha256"] == pretrained_record(name)["weights"]["sha256"]
    assert record["environment"]["dirty"] is False


def test_weights_that_turn_slowly_are_tried_on_a_larger_video():
    torch.manual_seed(0)
    flow = Rotation(count=1, degrees=2)
    model = Forecaster(flow=flow, hidden_channels=8, frame="comoving")
    assert verification.of_states(model, None, flow).verdict == "interpolated"


def test_a_whole_model_is_tried_on_the_canvas_of_its_training_where_its_v_stays(monkeypatch):
    recipe, shapes = find("table1/rotation/fernn-v4-comoving-transported"), []
    monkeypatch.setattr(verification, "verify", lambda _, video, *__, **___: shapes.append(video))
    for flow in (Rotation(velocities=[0, 90, 180, 270]), Rotation(count=1)):
        model = Forecaster(flow=flow, hidden_channels=2, frame="comoving")
        verification.of_whole(model, recipe, flow)
    stays, closed = (tuple(video.shape[3:]) for video in shapes)
    assert stays == recipe.data.canvas != closed


def test_a_model_on_a_closed_v_is_tried_there():
    model = Forecaster(flow=Translation(closed=(6, 4)), hidden_channels=2)
    assert verification.on_closed(model, model.flow) == (model, model.flow)
