"""Classifier and CNN3D: sizes of the paper, invariance where the theorem gives it."""

import pytest
import torch
import torch.nn.functional as F
from tolerances import BROKEN, TOLERANCE, error, same

from fernn import Classifier, Rotation, Translation
from fernn.models import CNN3D


def count(model):
    return sum(p.numel() for p in model.parameters())


def classifier(flow, **options):
    """A small double-precision model in eval mode, its norms with statistics of some training."""
    model = Classifier(flow=flow, **{"hidden_channels": 8} | options).double().train()
    with torch.no_grad():
        for _ in range(5):
            canvas = getattr(flow, "closed", None) or (6, 6)
            model(torch.randn(2, 5, 1, *canvas, dtype=torch.double))
        model.rnn.layers[0].recurrent.weight *= 3  # it remembers
    return model.eval()


def clip(*canvas):
    return torch.randn(3, 6, 1, *canvas, dtype=torch.double)


@pytest.mark.parametrize("flow", [None, Translation(radius=1), Translation(radius=2)], ids=str)
def test_classifier_has_242_thousand_parameters_for_every_set(flow):
    assert count(Classifier(flow=flow)) == 241_638


def test_classifier_with_learned_transport_has_625_more():
    flow = Translation(radius=2)
    assert count(Classifier(flow=flow, transport="learned")) == 241_638 + 625


def test_classifier_with_norm_has_a_scale_and_a_shift_a_channel_more():
    assert count(Classifier(norm=True)) == 241_638 + 2 * 128


def test_cnn3d_has_209_thousand_parameters():
    assert count(CNN3D()) == 208_598


@pytest.mark.parametrize("options", [{}, {"frame": "comoving"}, {"norm": True}], ids=str)
def test_classifier_is_invariant_to_the_flows_of_a_closed_set(options):
    flow = Translation(closed=(6, 5))
    model, x = classifier(flow, **options), clip(6, 5)
    before = model(x)
    assert before.std(0).max() > 1e-3
    for velocity in ((1, 0), (5, 3), (2, 2)):
        assert same(model(flow.act_sequence(x, velocity)), before)


@pytest.mark.parametrize(
    ("flow", "options"),
    [
        (None, {}),
        (Translation(closed=(6, 5)), {"transport": "learned"}),
    ],
)
def test_classifier_at_rest_or_with_learned_transport_is_not_invariant(flow, options):
    model, x = classifier(flow, **options), clip(6, 5)
    moved = Translation(radius=1).act_sequence(x, (1, 0))
    centre = model(x).mean(0)
    assert error(model(moved) - centre, model(x) - centre) > BROKEN


@pytest.mark.parametrize("flow", [None, Translation(radius=1)])
def test_classifier_is_invariant_to_what_stands_still(flow):
    model, x = classifier(flow), clip(6, 5)
    assert same(model(x.roll((2, 3), (-2, -1))), model(x))


def test_classifier_is_the_equation():
    """Encoder, h ← tanh(ψ_1·[W ⋆ h] + E(f)), maximum over V, mean over space, linear."""
    flow = Translation(velocities=[(0, 0), (1, 0), (-1, 2)])
    model, x = classifier(flow), clip(6, 5)

    def circular(x, weight):
        halo = weight.shape[-1] // 2
        return F.conv2d(F.pad(x, (halo,) * 4, mode="circular"), weight)

    def encode(frame):
        (layer,) = model.rnn.layers
        convolutions, norms = list(layer.input)[::3], list(layer.input)[1::3]
        assert [c.weight.shape[-1] for c in convolutions] == [5, 3, 3]
        for conv, norm in zip(convolutions, norms, strict=True):
            scale = norm.weight / (norm.running_var + norm.eps).sqrt()
            frame = circular(frame, conv.weight) - norm.running_mean[:, None, None]
            frame = torch.relu(frame * scale[:, None, None] + norm.bias[:, None, None])
        return frame

    weight = model.rnn.layers[0].recurrent.weight
    slices = []
    for velocity in flow.velocities.tolist():
        h = torch.zeros(3, 8, 6, 5, dtype=torch.double)
        for frame in x.unbind(1):
            h = torch.tanh(torch.roll(circular(h, weight), velocity, (-2, -1)) + encode(frame))
        slices.append(h)
    pooled = torch.stack(slices).amax(0).mean((-2, -1))
    assert same(model(x), F.linear(pooled, model.head.weight, model.head.bias))


def test_classifier_in_both_frames_is_one_function():
    lab = classifier(Translation(radius=1))
    comoving = classifier(Translation(radius=1), frame="comoving")
    comoving.load_state_dict(lab.state_dict())
    x = clip(6, 5)
    assert same(lab(x), comoving(x))


def test_cnn3d_halves_time_once_and_space_twice():
    model, x = CNN3D(classes=5, in_channels=2), torch.randn(2, 8, 2, 12, 16)
    shapes = []
    for module in model.layers:
        if isinstance(module, torch.nn.Conv3d):
            module.register_forward_hook(lambda *_, out=shapes: out.append(_[2].shape[1:]))
    assert model(x).shape == (2, 5)
    assert shapes == [
        (16, 4, 12, 16),
        (32, 4, 6, 8),
        (32, 4, 6, 8),
        (64, 4, 3, 4),
        (64, 4, 3, 4),
    ]


def test_cnn3d_is_not_invariant_to_flows():
    model, x = CNN3D().double().eval(), clip(8, 8)
    moved = Translation(radius=1).act_sequence(x, (1, 0))
    centre = model(x).mean(0)
    assert error(model(moved) - centre, model(x) - centre) > BROKEN


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Classifier(transport="none"), "`transport` must be one of 'flow', 'learned'"),
        (lambda: Classifier(classes=0), "`classes` must be a positive integer, got 0"),
        (lambda: Classifier(in_channels=0), "`in_channels` must be a positive integer, got 0"),
        (lambda: Classifier(frame="rest"), "`frame` must be one of 'lab', 'comoving', got 'rest'"),
        (lambda: Classifier(backend="cuda"), "`backend` must be one of .*got 'cuda'"),
        (lambda: Classifier(flow=Rotation(count=1)), "`flow` must be a Translation of images, got"),
        (lambda: Classifier(flow=Translation(1, dim=1)), "`flow` must be a Translation of images"),
        (
            lambda: Classifier(transport="learned", frame="comoving"),
            '`frame` must be "lab" with `transport`',
        ),
        (
            lambda: Classifier(flow=Translation(velocities=[(0, 1)])),
            "must contain the zero velocity.*Add it",
        ),
        (lambda: CNN3D(classes=0), "`classes` must be a positive integer, got 0"),
        (lambda: CNN3D(in_channels=0), "`in_channels` must be a positive integer, got 0"),
    ],
)
def test_classifier_refuses_bad_options(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_classifier_says_how_many_channels_it_needs():
    with pytest.raises(ValueError, match=r"`hidden_channels` must be .*4.*, got 2"):
        Classifier(hidden_channels=2)


@pytest.mark.parametrize("model", [Classifier, CNN3D])
@pytest.mark.parametrize("unknown", ["dropout", "pool"])
def test_classifier_refuses_unknown_options(model, unknown):
    with pytest.raises(TypeError, match=unknown):
        model(**{unknown: 1})


@pytest.mark.parametrize("make", [lambda: Classifier(hidden_channels=4), CNN3D])
@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        ([[0.0]], TypeError, "`clip` must be a torch.Tensor, got list"),
        (torch.zeros(1, 3, 8, 8), ValueError, "`clip` must have 5 axes \\[B, T, C, H, W\\], got 4"),
        (torch.zeros(1, 3, 2, 8, 8), ValueError, "must have 1 channels in .*got 2"),
        (torch.zeros(1, 0, 1, 8, 8), ValueError, "must not be empty"),
        (torch.zeros(0, 3, 1, 8, 8), ValueError, "must not be empty"),
        (
            torch.zeros(1, 3, 1, 8, 8).long(),
            TypeError,
            "real floating-point tensor, got torch.int64",
        ),
        (
            torch.zeros(1, 3, 1, 8, 8) + 0j,
            TypeError,
            "real floating-point tensor, got torch.complex",
        ),
    ],
)
def test_classifier_refuses_bad_input(make, x, kind, message):
    with pytest.raises(kind, match=message):
        make().eval()(x)


@pytest.mark.parametrize("make", [lambda: Classifier(hidden_channels=4), CNN3D])
@pytest.mark.parametrize("how", [{"device": "meta"}, {"dtype": torch.double}])
def test_classifier_refuses_a_clip_of_another_place(make, how):
    with pytest.raises((ValueError, TypeError), match=r"must (be on|have) the model's"):
        make().eval()(torch.zeros(1, 3, 1, 8, 8, **how))


def test_classifier_in_single_precision_is_invariant_to_rounding():
    flow = Translation(closed=(6, 5))
    model, x = classifier(flow).float(), clip(6, 5).float()
    assert error(model(flow.act_sequence(x, (2, 3))), model(x)) < TOLERANCE[torch.float32]


def test_classifier_refuses_a_canvas_smaller_than_its_encoder_wraps():
    model = Classifier(hidden_channels=4).eval()
    expected = r"`clip` must have at least 2 pixels a side .*kernel_size=5, .* got \(1, 1\)"
    with pytest.raises(ValueError, match=expected):
        model(torch.zeros(1, 2, 1, 1, 1))
    assert model(torch.zeros(1, 2, 1, 2, 2)).shape == (1, 6)
