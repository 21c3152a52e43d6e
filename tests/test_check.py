"""Checks of arguments, where a trace, an array or autocast gets between them and their value."""

import numpy as np
import pytest
import torch
from tolerances import same

from fernn import Forecaster, Translation, _check

MOVING = Translation(radius=1)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")
@pytest.mark.parametrize(("dynamic", "horizons"), [(None, (3, 4, 5)), (True, (2,))])
def test_count_takes_a_number_that_a_trace_leaves_open(dynamic, horizons):
    torch.compiler.reset()
    model = Forecaster(flow=MOVING, hidden_channels=4, decoder_layers=0).eval()
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=dynamic)
    video = torch.rand(2, 2, 1, 6, 6)
    for horizon in horizons:
        assert same(compiled(video, horizon=horizon), model(video, horizon=horizon))


@pytest.mark.parametrize("value", [np.int64(3), np.array(3), torch.tensor(3)])
def test_count_takes_the_integers_of_others(value):
    assert _check.count("radius", value, least=0) == 3


@pytest.mark.parametrize(
    "value", [np.arange(2), torch.arange(2), np.array([3]), torch.tensor(3.0), np.bool_(True)]
)
def test_count_refuses_what_is_no_single_integer(value):
    with pytest.raises(ValueError, match="`radius` must be a non-negative integer, got "):
        _check.count("radius", value, least=0)


@pytest.mark.parametrize("wide", ["video", "model"])
def test_autocast_does_not_take_float64_beside_float32(wide):
    """It leaves float64 as it is, and a convolution would meet both."""
    model, video = Forecaster(flow=MOVING, hidden_channels=4), torch.rand(1, 2, 1, 6, 6)
    model, video = (model.double(), video) if wide == "model" else (model, video.double())
    kept = "float64" if wide == "model" else "float32"
    message = rf"`video` must have the model's dtype torch.{kept}, .*`video.to\(torch.{kept}\)`\.$"
    with pytest.raises(TypeError, match=message), torch.autocast("cpu"):
        model(video)
    with pytest.raises(TypeError, match=message):
        model(video)


def test_another_dtype_on_the_meta_device_is_named():
    model = Forecaster(flow=MOVING, hidden_channels=4).to("meta")
    with pytest.raises(TypeError, match=r"the model's dtype torch\.float32, got"):
        model(torch.rand(1, 2, 1, 6, 6, device="meta", dtype=torch.bfloat16))
