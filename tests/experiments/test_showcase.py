"""The forecasts of pretrained models that the demo shows."""

from pathlib import Path

import torch
from PIL import Image

from fernn.data import FlowingMNIST
from fernn.experiments import showcase
from fernn.flows import Translation
from fernn.models import load_pretrained


def test_forecast_is_of_the_first_test_sequence():
    shown = showcase.forecast(horizon=3)
    frames = FlowingMNIST(Translation(radius=2), "test", length=13).batch([0], epoch=0).frames
    assert torch.equal(shown.observed, frames[0, :10, 0])
    assert torch.equal(shown.truth, frames[0, 10:, 0])
    assert list(shown.models) == ["G-RNN, published", "FERNN-V^T_2, transported"]
    with torch.no_grad():
        expected = load_pretrained("translating-mnist/fernn-v2")(frames[:, :10], 3)[0, :, 0]
    torch.testing.assert_close(shown.models["FERNN-V^T_2, transported"], expected)


def test_the_picture_in_the_readme_is_of_the_weights_in_the_package():
    picture = Path(__file__).parents[2] / "docs" / "forecast.png"
    with Image.open(picture) as image:
        assert image.text["Description"] == showcase.weights()


def test_panel_names_the_error_of_each_model():
    shown = showcase.forecast(showcase.PAIR[:1], horizon=2)
    panel = showcase.panel(shown)
    error = float((shown.models["G-RNN, published"] - shown.truth).square().mean())
    assert panel.title == "2 frames forecast from 10"
    assert panel.note == f"MSE of this sequence: G-RNN, published {error:.1e}"
