"""The meta device: tensors without values have the shapes of those that have them."""

import pytest
import torch
from torch import Tensor

from fernn import SE2, Classifier, FlowRNN, Forecaster, Rotation, Translation

MOVING, QUARTERS = Translation(radius=1), Rotation(count=1, degrees=90, group=SE2(4))
MODELS = {
    "forecaster": lambda: Forecaster(flow=MOVING, hidden_channels=8),
    "turning forecaster": lambda: Forecaster(flow=QUARTERS, hidden_channels=2),
    "recurrence": lambda: FlowRNN(1, 4, flow=MOVING),
    "classifier": lambda: Classifier(flow=MOVING, hidden_channels=4),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_runs_on_the_meta_device(name):
    model, video = MODELS[name](), torch.rand(2, 3, 1, 8, 8)
    want, got = (model.to(device)(video.to(device)) for device in ("cpu", "meta"))
    if not isinstance(want, Tensor):
        want, got = want[0], got[0]
    assert got.is_meta
    assert got.shape == want.shape
