"""Forecaster: the transported readout is flow equivariant end to end, the published one is not."""

import pytest
import torch
import torch.nn.functional as F
from tolerances import BROKEN, TOLERANCE, error, same
from torch import nn

from fernn import SE2, Classifier, Forecaster, RigidMotion, Rotation, Stream, Translation


def count(model):
    return sum(p.numel() for p in model.parameters())


def forecaster(flow, **options):
    """A small double-precision model: no constant drowns its predictions, nor do they fade."""
    options = {"hidden_channels": 4, "decoder_layers": 1, "in_channels": 2} | options
    model = Forecaster(flow=flow, **options).double()
    for module in model.decoder:
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            nn.init.zeros_(module.bias)
            module.weight.data *= 2
    return model


def video(*canvas, steps=5, channels=2):
    return torch.randn(2, steps, channels, *canvas, dtype=torch.double)


def circular(x, conv):
    weight, bias = (conv.weight, conv.bias) if isinstance(conv, nn.Conv2d) else (conv.weight, None)
    halo = weight.shape[-1] // 2
    return F.conv2d(F.pad(x, (halo,) * 4, mode="circular"), weight, bias)


def literal(model, x, horizon, *, transported, stop=True):
    """The forecast in straight lines: observe, feed back, roll each slice, pool, decode."""
    (layer,) = model.rnn.layers
    velocities = model.flow.velocities.tolist()

    def step(h, frame):
        return [
            torch.relu(
                torch.roll(circular(slice_, layer.recurrent), velocity, (-2, -1))
                + circular(frame, layer.input)
            )
            for slice_, velocity in zip(h, velocities, strict=True)
        ]

    def read(h):
        if transported:
            h = [torch.roll(s, v, (-2, -1)) for s, v in zip(h, velocities, strict=True)]
        seen = torch.stack(h).amax(0)
        for index, module in enumerate(model.decoder):
            seen = circular(seen, module) if index % 2 == 0 else torch.relu(seen)
        return seen

    width = layer.recurrent.weight.shape[0]
    h = [x.new_zeros(len(x), width, *x.shape[3:]) for _ in velocities]
    for frame in x.unbind(1):
        h = step(h, frame)
    out = []
    if transported:
        out.append(read(h))
    while len(out) < horizon:
        last = out[-1] if out else x[:, -1]
        h = step(h, last.detach() if stop else last)
        out.append(read(h))
    return torch.stack(out, 1)


@pytest.mark.parametrize("frame", ["lab", "comoving"])
@pytest.mark.parametrize("readout", ["transported", "published"])
def test_forecaster_is_the_equation_with_its_gradients_stopped(readout, frame):
    """Published: frame T is fed again, then each prediction. Transported: predictions alone."""
    flow, x = Translation(velocities=[(0, 0), (1, 0), (-1, 2)]), video(5, 6)
    model = forecaster(flow, readout=readout, frame=frame, decoder_layers=2)
    weights = list(model.parameters())
    got = model(x, horizon=4)
    want = literal(model, x, 4, transported=readout == "transported")
    assert same(got, want)
    leaky = literal(model, x, 4, transported=readout == "transported", stop=False)
    gradients = [
        torch.autograd.grad(out.square().sum(), weights, allow_unused=True)
        for out in (got, want, leaky)
    ]
    for a, b in zip(*gradients[:2], strict=True):
        assert same(a, b)
    assert any(error(a, b) > BROKEN for a, b in zip(gradients[2], gradients[1], strict=True))


def moved_forecast_error(model, velocity, canvas, *, steps=5, horizon=5):
    """How far the forecast of a moving video is from the moved forecast, all of it compared."""
    flow, x = model.flow, video(*canvas, steps=steps)
    before = model(x, horizon)
    axes = tuple(range(-flow.group.dim, 0))
    assert (before.std(axes) > 0.02 * before.mean(axes).abs()).all()
    assert not torch.allclose(before[:, 0], before[:, -1])
    moved = model(flow.act_sequence(x, velocity), horizon)
    want = flow.act_sequence(before, velocity, start=steps)
    return max(error(moved[:, t], want[:, t]) for t in range(horizon))


CLOSED = {
    "1-D": (Translation(closed=(7,)), (3,), (7,), {}),
    "2-D": (Translation(closed=(5, 4)), (3, 1), (5, 4), {}),
    "2-D, co-moving": (Translation(closed=(5, 4)), (3, 1), (5, 4), {"frame": "comoving"}),
    "2-D, mixing": (Translation(closed=(4, 3)), (1, 2), (4, 3), {"mixing": "full"}),
    "3-D": (Translation(closed=(3, 2, 3)), (1, 1, 2), (3, 2, 3), {}),
}


@pytest.mark.parametrize(("flow", "velocity", "canvas", "options"), CLOSED.values(), ids=CLOSED)
def test_forecaster_with_transported_readout_is_flow_equivariant(flow, velocity, canvas, options):
    model = forecaster(flow, **options)
    assert moved_forecast_error(model, velocity, canvas) < TOLERANCE[torch.float64]


def test_forecaster_at_rest_and_with_published_readout_is_not_flow_equivariant():
    flow, velocity, canvas, _ = CLOSED["2-D"]
    published = forecaster(flow, readout="published")
    assert moved_forecast_error(published, velocity, canvas) > 0.3
    rest = forecaster(None)
    assert moved_forecast_error(rest, velocity, canvas) > BROKEN


def test_forecaster_on_a_truncated_set_leaks_through_the_pool():
    """Measured 0.1 to 0.6 at initialisation, largest error over largest value."""
    leak = moved_forecast_error(forecaster(Translation(radius=1)), (1, 0), (5, 6))
    assert BROKEN < leak < 1


def test_forecaster_predicts_where_a_bump_will_be():
    """W, U and decoder the identity: the brightest point goes on where the bump would."""
    flow, bump = Translation(radius=2), torch.zeros(1, 1, 1, 5, 16, dtype=torch.double)
    bump[..., 2, 0] = 1.0
    x = flow.act_sequence(bump.expand(1, 4, 1, 5, 16), (0, 2))
    for given, places in ((flow, [8, 10, 12]), (None, [0, 0, 0])):
        model = Forecaster(flow=given, hidden_channels=1, kernel_size=1, decoder_layers=0).double()
        for parameter in model.parameters():
            nn.init.ones_(parameter) if parameter.ndim > 1 else nn.init.zeros_(parameter)
        peaks = model(x, horizon=3)[0, :, 0].flatten(1).argmax(1)
        assert [divmod(peak, 16) for peak in peaks.tolist()] == [(2, place) for place in places]


@pytest.mark.parametrize("group", [SE2(1), SE2(4)])
@pytest.mark.parametrize("horizon", [1, 3])
def test_forecaster_of_rotations_has_the_shape_of_the_video(group, horizon):
    model = Forecaster(flow=Rotation(velocities=[-90, 0, 90], group=group), hidden_channels=3)
    assert model.rnn.frame == "comoving"
    out = model(torch.randn(2, 4, 1, 8, 8), horizon)
    assert out.shape == (2, horizon, 1, 8, 8)
    assert model.decoder[0].in_channels == 3 * group.order


def test_forecaster_takes_the_paper_s_rotations():
    model = Forecaster(flow=Rotation(count=4, group=SE2(36)), hidden_channels=1, decoder_layers=1)
    assert model(torch.randn(1, 2, 1, 10, 10), horizon=2).shape == (1, 2, 1, 10, 10)
    assert model.rnn.observe(torch.randn(1, 2, 1, 10, 10)).lab().shape == (1, 9, 36, 10, 10)


def test_forecaster_of_quarter_turns_commutes_with_them_up_to_its_ordinary_decoder():
    """A 1×1 decoder that weighs all orientations alike is all that a CNN on channels must be."""
    flow = Rotation(velocities=[0, 90, 180, 270], group=SE2(4))
    model = forecaster(flow, decoder_layers=0, hidden_channels=3)
    with torch.no_grad():
        (decoder,) = model.decoder
        weight = torch.zeros_like(decoder.weight).unflatten(1, (3, 4))
        weight[:, :, :, 1, 1] = torch.randn(2, 3, 1, dtype=torch.double) / 9
        decoder.weight.copy_(weight.flatten(1, 2))
    assert moved_forecast_error(model, 90, (5, 5)) < TOLERANCE[torch.float64]


@pytest.mark.parametrize(
    "flow",
    [
        None,
        Translation(radius=1),
        Translation(radius=2),
        Translation(velocities=[(0, v) for v in (-5, -3, -1, 0, 1, 3, 5)]),
        Translation(closed=(28, 28)),
    ],
    ids=str,
)
def test_forecaster_has_the_same_parameters_for_every_set(flow):
    """U 1·128·9, W 128²·9, three decoder layers of 128²·9 + 128, one of 128·9 + 1."""
    wanted = 1152 + 147456 + 3 * (147456 + 128) + 1153
    assert count(Forecaster(flow=flow)) == wanted
    assert count(Forecaster(flow=flow, decoder_layers=4)) == wanted + 147584


def test_forecaster_with_full_mixing_has_twelve_million_parameters_in_its_recurrence():
    model = Forecaster(flow=Translation(radius=2), mixing="full")
    assert count(model.rnn.layers[0].recurrent) == 81 * 9 * 128**2 == 11_943_936
    model = Forecaster(flow=Translation(radius=2), mixing=1)
    assert count(model.rnn.layers[0].recurrent) == 9 * 9 * 128**2


def test_forecaster_without_a_flow_is_the_recurrence_at_rest():
    model = Forecaster(hidden_channels=4)
    assert model.flow == Translation(radius=0)
    assert model.config["flow"] == Translation(radius=0)
    assert model.readout == "transported"


def test_forecaster_in_both_frames_is_one_function():
    lab = forecaster(Translation(radius=1), frame="lab")
    comoving = forecaster(Translation(radius=1), frame="comoving")
    assert list(lab.state_dict()) == list(comoving.state_dict())
    comoving.load_state_dict(lab.state_dict())
    x = video(5, 6)
    made = [[model(x, 4)] for model in (lab, comoving)]
    for model, row in zip((lab, comoving), made, strict=True):
        row += torch.autograd.grad(row[0].square().sum(), list(model.parameters()))
    for a, b in zip(*made, strict=True):
        assert same(a, b)


def test_forecaster_of_a_long_horizon_begins_with_that_of_a_short_one():
    model, x = forecaster(Translation(radius=1)), video(5, 6)
    assert same(model(x, 6)[:, :2], model(x, 2))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated.*:DeprecationWarning")
def test_forecaster_compiles_to_one_graph():
    torch.compiler.reset()
    model = Forecaster(flow=Translation(radius=1), hidden_channels=3)
    x = torch.randn(2, 3, 1, 5, 6)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert same(compiled(x, 2), model(x, 2))


def test_forecaster_trains_under_autocast():
    model, x = Forecaster(flow=Translation(radius=1), hidden_channels=4), torch.randn(2, 3, 1, 5, 6)
    with torch.autocast("cpu", torch.bfloat16):
        out = model(x, 3)
    assert error(out, model(x, 3)) < TOLERANCE[torch.bfloat16]
    out.float().square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"readout": "pooled"},
            "`readout` must be one of 'transported', 'published', got 'pooled'",
        ),
        ({"frame": "rest"}, "`frame` must be one of 'lab', 'comoving', got 'rest'"),
        ({"backend": "cuda"}, "`backend` must be one of .*got 'cuda'"),
        ({"mixing": "some"}, '`mixing` must be "full", a radius or None'),
        ({"decoder_layers": -1}, "`decoder_layers` must be a non-negative integer, got -1"),
        ({"in_channels": 0}, "`in_channels` must be a positive integer, got 0"),
        ({"hidden_channels": 0}, "`hidden_channels` must be a positive integer, got 0"),
        ({"kernel_size": 2}, "`kernel_size` must be odd, got 2"),
        ({"flow": Rotation(count=1), "frame": "lab"}, "multiples of 360° in the lab frame"),
        ({"flow": Rotation(count=1, group=SE2(8))}, "multiples of 45° to permute"),
        (
            {"flow": RigidMotion([(0, 0, 0), (10, 0, 0)]), "mixing": 1},
            '`frame` must be "lab" with `mixing`',
        ),
        ({"flow": Translation(velocities=[(0, 1)])}, "must contain the zero velocity.*Add it"),
    ],
)
def test_forecaster_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Forecaster(**options)


@pytest.mark.parametrize("unknown", ["dropout", "norm", "pool"])
def test_forecaster_refuses_unknown_options(unknown):
    with pytest.raises(TypeError, match=unknown):
        Forecaster(**{unknown: 1})


@pytest.mark.parametrize(
    ("x", "horizon", "kind", "message"),
    [
        (torch.zeros(1, 3, 1, 5, 5), 0, ValueError, "`horizon` must be a positive integer, got 0"),
        (torch.zeros(1, 3, 1, 5, 5), 2.5, ValueError, "`horizon` must be a positive integer"),
        (torch.zeros(1, 3, 5, 5), 2, ValueError, "`video` must have 5 axes"),
        (torch.zeros(1, 3, 2, 5, 5), 2, ValueError, "`video` must have 1 channels"),
        (torch.zeros(1, 0, 1, 5, 5), 2, ValueError, "`video` must not be empty"),
        (torch.zeros(0, 3, 1, 5, 5), 2, ValueError, "`video` must not be empty"),
        (torch.zeros(1, 3, 1, 5, 5).long(), 2, TypeError, "`video` must be a real floating-point"),
        (torch.zeros(1, 3, 1, 5, 5).double(), 2, TypeError, "`video` must have the model's dtype"),
        (
            torch.zeros(1, 3, 1, 5, 5).to("meta"),
            2,
            ValueError,
            "on the model's device cpu, got meta",
        ),
    ],
)
def test_forecaster_refuses_bad_input(x, horizon, kind, message):
    with pytest.raises(kind, match=message):
        Forecaster(hidden_channels=2, decoder_layers=0)(x, horizon)


def test_forecaster_refuses_a_list_of_widths():
    with pytest.raises(ValueError, match=r"`hidden_channels` must be a positive integer, got \[4"):
        Forecaster(hidden_channels=[4, 4])


@pytest.mark.parametrize("make", [Forecaster, Classifier])
def test_models_refuse_what_is_not_a_flow(make):
    with pytest.raises(
        TypeError, match=r"`flow` must be a Flow, got 'V2'. .*Translation\(radius=2\)"
    ):
        make(flow="V2")


def test_forecaster_refuses_a_canvas_smaller_than_its_decoder_wraps():
    model = Forecaster(hidden_channels=2, kernel_size=7, decoder_layers=1)
    expected = r"at least 3 pixels a side .*kernel_size=7, .* got \(2, 2\)"
    with pytest.raises(ValueError, match="`video` must have " + expected):
        model(torch.zeros(1, 2, 1, 2, 2))
    with pytest.raises(ValueError, match="`frame` must have " + expected):
        Stream(model)(torch.zeros(1, 1, 2, 2))
    assert model(torch.zeros(1, 2, 1, 3, 3), horizon=1).shape == (1, 1, 1, 3, 3)
