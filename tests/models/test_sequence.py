"""SequenceForecaster: other causal models, alone or in every moving frame."""

import pytest
import torch
from safetensors.torch import save_model
from suites import run_suite
from tolerances import BROKEN, TOLERANCE, error, same
from torch import nn

from fernn import Rotation, Translation, load, save
from fernn.models import SequenceForecaster
from fernn.nn import Cell, ConvGRU

SEQUENCES = ("convgru", "attention")


def forecaster(sequence, flow=None):
    """A small double-precision model whose predictions no constant drowns."""
    model = SequenceForecaster(
        sequence=sequence, flow=flow, in_channels=2, hidden_channels=4, decoder_layers=1
    ).double()
    for module in model.decoder:
        if isinstance(module, nn.Conv2d):
            nn.init.zeros_(module.bias)
            module.weight.data *= 2
    return model


def video(rows=5, columns=4, steps=4):
    return torch.randn(2, steps, 2, rows, columns, dtype=torch.double)


def moved(flow, x, velocity, start):
    time = torch.arange(start, start + x.shape[1])
    return torch.stack(
        [flow.act(frame, velocity, int(t)) for t, frame in zip(time, x.unbind(1), strict=True)], 1
    )


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_sequence_forecaster_is_flow_equivariant_on_a_closed_v(sequence):
    flow, velocity, x = Translation(closed=(5, 4)), (3, 1), video()
    errors = []
    for model in (forecaster(sequence, flow), forecaster(sequence)):
        after = model(moved(flow, x, velocity, 0), horizon=3)
        want = moved(flow, model(x, horizon=3), velocity, x.shape[1])
        errors.append(error(after, want))
    assert errors[0] < TOLERANCE[torch.double]
    assert errors[1] > BROKEN  # alone it is not


@pytest.mark.parametrize("sequence", SEQUENCES)
@pytest.mark.parametrize("flow", [None, Translation(radius=1)])
def test_sequence_forecaster_feeds_its_predictions_back(sequence, flow):
    """Each prediction is the readout of the whole sequence so far, predictions included."""
    model, x = forecaster(sequence, flow), video()
    out = model(x, horizon=3)
    for step in range(3):
        seen = torch.cat([x, out[:, :step]], 1)
        state = model.sequence(seen)[:, -1]
        ahead = model.flow.transport(state, 1, features=False)
        assert same(out[:, step], model.decoder(ahead.amax(1)))


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_sequence_forecaster_stops_gradients_at_predictions(sequence):
    model, x = forecaster(sequence, Translation(radius=1)), video().requires_grad_()
    model(x, horizon=3)[:, 2].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    y = x.detach()
    first = model(y, horizon=1)
    seen = torch.cat([y, first.detach(), model(y, horizon=2)[:, 1:].detach()], 1)
    alone = torch.autograd.grad(model(seen, horizon=1).sum(), [*model.parameters()])
    for got, want in zip((p.grad for p in model.parameters()), alone, strict=True):
        assert same(got, want)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_wrapping_adds_no_weights(sequence):
    counts = {
        sum(p.numel() for p in forecaster(sequence, flow).parameters())
        for flow in (None, Translation(radius=2))
    }
    assert len(counts) == 1


class Leaky(Cell):
    """A recurrence that is not of the library: h ← h/2 + U f."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")

    def init_state(self, frame):
        return (frame.new_zeros(frame.shape[0], 4, *frame.shape[2:]),)

    def step(self, frame, state):
        return (state[0] / 2 + self.conv(frame),)


def test_sequence_forecaster_takes_a_cell_of_ones_own(tmp_path):
    flow, velocity, x, cell = Translation(closed=(5, 4)), (3, 1), video(), Leaky()
    errors = []
    for model in (forecaster(cell, flow), forecaster(cell)):
        assert model.sequence.module is cell
        after = model(moved(flow, x, velocity, 0), horizon=3)
        errors.append(error(after, moved(flow, model(x, horizon=3), velocity, x.shape[1])))
    assert errors[0] < TOLERANCE[torch.double]
    assert errors[1] > BROKEN
    model, again = forecaster(cell, flow), forecaster(Leaky(), flow)
    save_model(model, tmp_path / "weights")
    assert torch.equal(load(tmp_path / "weights", into=again)(x, 2), model(x, 2))
    save(forecaster("convgru", Translation(radius=1)), tmp_path / "wide")
    with pytest.warns(UserWarning, match=r"radius.*1.* in the file, .*radius.*0.* in the model"):
        load(tmp_path / "wide", into=forecaster(ConvGRU(2, 4)))
    with pytest.raises(
        TypeError, match=r"can name.* got one around a Leaky\. Write it with safetensors"
    ):
        save(forecaster(cell, flow), tmp_path / "model")
    with pytest.raises(TypeError, match=r'a ConvGRU\. Built with sequence="convgru" in its place'):
        save(forecaster(ConvGRU(2, 4)), tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_sequence_forecaster_is_saved_with_its_configuration(sequence, tmp_path):
    model = forecaster(sequence, Translation(radius=1))
    save(model, tmp_path / "model")
    x = video()
    assert torch.equal(load(tmp_path / "model")(x, 2), model(x, 2))


def test_sequence_forecaster_refuses():
    with pytest.raises(ValueError, match="`sequence` must be one of"):
        SequenceForecaster(sequence="mamba")
    with pytest.raises(TypeError, match=r"`sequence` must be a Cell.*got Identity"):
        SequenceForecaster(sequence=nn.Identity())
    with pytest.raises(TypeError, match=r"`sequence` must be a Cell.*got <class .*Leaky"):
        SequenceForecaster(sequence=Leaky)
    with pytest.raises(ValueError, match=r"`hidden_channels` must be what .* has, 4, got 128"):
        SequenceForecaster(sequence=Leaky(), in_channels=2)(torch.zeros(1, 2, 2, 4, 4))
    with pytest.raises(ValueError, match="`flow` must be a Translation of images"):
        SequenceForecaster(flow=Rotation(count=1))
    with pytest.raises(ValueError, match="`in_channels` must be a positive integer, got 0"):
        SequenceForecaster(in_channels=0)
    with pytest.raises(ValueError, match=r"`in_channels` must be what .* takes, 2, got 1"):
        SequenceForecaster(sequence=ConvGRU(2, 4))
    with pytest.raises(ValueError, match=r"`hidden_channels` must be a multiple of 4, .* got 6"):
        SequenceForecaster(sequence="attention", hidden_channels=6)
    with pytest.raises(ValueError, match=r"`video` must have 1 channels .*\(1, 2, 3, 4, 4\)"):
        SequenceForecaster(hidden_channels=4)(torch.zeros(1, 2, 3, 4, 4))
    with pytest.raises(TypeError, match="`video` must have the model's dtype"):
        SequenceForecaster(hidden_channels=4)(torch.zeros(1, 2, 1, 4, 4).double())
    with pytest.raises(ValueError, match="`horizon` must be a positive integer"):
        SequenceForecaster(hidden_channels=4)(torch.zeros(1, 2, 1, 4, 4), horizon=0)
    with pytest.raises(ValueError, match="`video` must not be empty"):
        SequenceForecaster(hidden_channels=4)(torch.zeros(1, 0, 1, 4, 4))


def test_forecast_with_kernels_is_the_plain_one_in_the_interpreter():
    pytest.importorskip("triton")
    run_suite("models/sequence_suite.py", interpreted=True)


@pytest.mark.gpu
def test_forecast_with_kernels_is_the_plain_one_on_the_device():
    run_suite("models/sequence_suite.py", interpreted=False)
