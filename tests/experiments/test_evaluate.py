"""Evaluation: the numbers are those of a plain loop, and do not depend on who asks."""

import json

import pytest
import torch
from torch import nn

from fernn.data import ClipArchive, FlowingMNIST
from fernn.experiments import evaluate as evaluation
from fernn.experiments import testdata
from fernn.experiments.evaluate import at_velocity, evaluate
from fernn.experiments.flops import flops_per_sequence
from fernn.experiments.recipes import find, recipes
from fernn.experiments.testdata import LONG_HORIZON, TestData
from fernn.flows import Rotation, Translation


@pytest.fixture
def recipe():
    flow = Translation(velocities=[(0, 0), (0, 1)])
    made = find("table1/translation/fernn-v1", "quick")
    return made.but(
        data={"flow": flow, "test_flow": flow, "observed": 3, "horizon": 2, "test_size": 5},
        options={"flow": flow, "hidden_channels": 2},
        training={"batch_size": 2},
    )


@pytest.fixture
def archive():
    frames = torch.randint(0, 256, (24 * 32, 32, 32), dtype=torch.uint8)
    label = (torch.arange(24) >= 15).long()  # sorted, as archives are
    return ClipArchive(
        "kth",
        ("a", "b", "never"),
        frames,
        torch.full((24,), 32),
        label,
        torch.arange(24),
        torch.zeros(24, dtype=torch.int64),
        clip=tuple(f"clip{i}" for i in range(24)),
        split=("train", "val", "test") * 8,
    )


def clips_recipe(**data):
    made = find("table2/kth/fernn-v1", "quick")
    flow = Translation(velocities=[(0, 0), (0, 1)])
    return made.but(data=data, options={"flow": flow, "hidden_channels": 4, "classes": 3})


class Persistence(nn.Module):
    """Forecasts that the last frame stays: right at velocity zero alone."""

    def forward(self, video, horizon):
        return video[:, -1:].expand(-1, horizon, -1, -1, -1)


def test_evaluate_agrees_with_a_plain_loop(recipe):
    recipe = recipe.but(data={"canvas": (28, 30)})
    model = recipe.build()
    metrics = evaluate(model, recipe)
    videos = FlowingMNIST(recipe.data.test_flow, "test", length=5, size=5, canvas=(28, 30))
    frames = videos.batch(range(5), epoch=0).frames
    with torch.no_grad():
        error = (model.eval()(frames[:, :3], 2) - frames[:, 3:]).double() ** 2
    assert metrics["test_mse"] == pytest.approx(float(error.mean()), rel=1e-6)
    assert metrics["test_mse_frame_sum"] == pytest.approx(float(error.sum((-2, -1)).mean()))
    assert metrics["mse_per_step"] == pytest.approx(error.mean((0, 2, 3, 4)).tolist(), rel=1e-6)
    assert metrics["sequences"] == {"test": 5, "long": 5, "per_velocity": 5}


def test_evaluate_forecasts_further_than_training(recipe):
    metrics = evaluate(recipe.build(), recipe)
    long = metrics["mse_per_step_long"]
    assert len(long) == LONG_HORIZON == 70
    # The same sequences, so the long forecast begins as the short one.
    assert long[:2] == pytest.approx(metrics["mse_per_step"], rel=1e-5)


def test_evaluate_of_a_forecast_that_runs_away_is_still_json(recipe):
    class Away(nn.Module):
        def forward(self, video, horizon):
            return video[:, -1:] * torch.logspace(0, 400, horizon)[:, None, None, None]

    metrics = evaluate(Away(), recipe)
    assert metrics["test_mse"] is None
    assert metrics["mse_per_step"][0] > 0
    assert metrics["mse_per_step"][1] is None
    json.dumps(metrics, allow_nan=False)


def test_evaluate_takes_a_share_of_many_sequences_for_what_is_long(recipe, monkeypatch):
    monkeypatch.setattr(evaluation, "LEAST_SEQUENCES", 1)
    metrics = evaluate(Persistence(), recipe.but(data={"test_size": 40}))
    assert metrics["sequences"] == {"test": 40, "long": 4, "per_velocity": 2}


def test_evaluate_tells_how_far_it_is_in_frames(recipe, monkeypatch):
    monkeypatch.setattr(testdata, "LEAST_BATCH", 3)
    told = []
    evaluate(Persistence(), recipe, progress=lambda *call: told.append(call))
    names = ("test split", "70 frames ahead", "velocity 1 of 2", "velocity 2 of 2")
    befores, lengths = (0, 25, 390, 415), (5, 73, 5, 5)
    assert told == [
        (before + done * length, 440, f"{name}, {done} of 5 sequences")
        for name, before, length in zip(names, befores, lengths, strict=True)
        for done in (0, 3)
    ]


def test_evaluate_tells_what_is_done_where_batches_did_not_fit(recipe, monkeypatch):
    monkeypatch.setattr(testdata, "LEAST_BATCH", 4)
    told = []
    evaluate(Small(Persistence(), 2), recipe, progress=lambda *call: told.append(call[0]))
    assert told[:4] == [0, 0, 10, 20]
    assert told[1:] == sorted(told)[1:]


def test_evaluate_of_clips_tells_how_far_it_is(archive):
    told, recipe = [], clips_recipe()
    evaluate(recipe.build(), recipe, archive=archive, progress=lambda *call: told.append(call))
    names = ("test split", "V^T_0", "V^T_1")  # V^T_2 is the split itself
    assert told == [(8 * n, 24, f"{name}, 0 of 8 sequences") for n, name in enumerate(names)]


class Small(nn.Module):
    """A model on a device with room for a few sequences."""

    def __init__(self, model, most):
        super().__init__()
        self.model, self.most, self.sizes = model, most, []

    def forward(self, video, *rest):
        self.sizes.append(len(video))
        if len(video) > self.most:
            raise torch.OutOfMemoryError("made up")
        return self.model(video, *rest)


@pytest.mark.parametrize("most", [1, 3, 20])
def test_evaluate_takes_fewer_sequences_at_once_where_they_do_not_fit(most, recipe):
    recipe = recipe.but(data={"test_size": 40}, training={"batch_size": 64})
    small = Small(Persistence(), most)
    assert evaluate(small, recipe) == evaluate(Persistence(), recipe)  # to the bit
    failed = [size for size in small.sizes if size > most]
    assert failed == [32, 16, 8, 4, 2][: len(failed)]  # and is remembered
    assert len(failed) == {1: 5, 3: 4, 20: 1}[most]
    model = recipe.build()
    tight, roomy = evaluate(Small(model, most), recipe), evaluate(model, recipe)
    assert tight["mse_per_step_long"] == pytest.approx(roomy["mse_per_step_long"], rel=1e-5)


class Hungry(Persistence):
    """A model that takes 8 MiB a sequence, in eight parts."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def forward(self, video, *rest):
        self.sizes.append(len(video))
        parts = []
        for _ in range(8):
            parts.append(torch.empty(len(video) << 20, dtype=torch.uint8, device=video.device))
        return super().forward(video, *rest)


@pytest.mark.gpu
def test_evaluate_fits_into_a_small_gpu(recipe):
    """What did not fit is let go: half as many sequences, and half again, then have their room."""
    recipe = recipe.but(data={"test_size": 512}, training={"batch_size": 512})
    hungry = Hungry()
    torch.cuda.empty_cache()
    room = torch.cuda.memory_reserved() + 3 * 2**29  # 1.5 GiB: for 128 sequences, not for 256
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.mem_get_info()[1])
    try:
        tight = evaluate(hungry, recipe, device="cuda")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert hungry.sizes[:6] == [512, 256, *[128] * 4]
    assert max(hungry.sizes[6:]) <= 128
    roomy = evaluate(Persistence(), recipe, device="cuda")
    for name in ("test_mse", "mse_per_step", "mse_per_step_long"):
        assert tight[name] == pytest.approx(roomy[name], rel=1e-5)


def test_evaluate_of_clips_takes_fewer_at_once(archive):
    recipe = clips_recipe()
    model = recipe.build()
    assert evaluate(Small(model, 3), recipe, archive=archive) == evaluate(
        model, recipe, archive=archive
    )


def test_evaluate_where_nothing_fits_says_so(recipe):
    with pytest.raises(MemoryError, match="too small for one sequence of the test"):
        evaluate(Small(Persistence(), 0), recipe)


def test_evaluate_per_velocity_moves_both_digits_at_that_velocity(recipe):
    rows = evaluate(Persistence(), recipe)["mse_per_velocity"]
    assert [row["velocity"] for row in rows] == [[0, 0], [0, 1]]
    assert rows[0]["mse"] == 0
    assert rows[1]["mse"] > 1e-3


@pytest.mark.parametrize("flow", [Rotation(count=1), Translation(radius=1)])
def test_at_velocity_is_that_velocity_of_the_same_kind(flow):
    for velocity in flow.velocities.tolist():
        made = at_velocity(flow, velocity)
        assert type(made) is type(flow)
        assert made.velocities.tolist() == [velocity]


def test_evaluate_rotation_and_bouncing():
    turning = find("table1/rotation/grnn-comoving", "quick").but(data={"test_size": 1})
    rows = evaluate(Persistence(), turning)["mse_per_velocity"]
    assert [row["velocity"] for row in rows] == turning.data.test_flow.velocities.tolist()
    bouncing = find("table4/grnn", "quick").but(data={"test_size": 1})
    assert "mse_per_velocity" not in evaluate(Persistence(), bouncing)


def test_evaluate_is_the_same_at_every_call_and_batch_size(recipe, monkeypatch):
    model = recipe.build().train()
    state = torch.get_rng_state()
    first = evaluate(model, recipe)
    assert evaluate(model, recipe) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert not any(p.grad is not None for p in model.parameters())
    monkeypatch.setattr(testdata, "LEAST_BATCH", 1)
    other = evaluate(model, recipe)
    assert other["test_mse"] == pytest.approx(first["test_mse"], rel=1e-6)
    json.dumps(first)


def test_evaluate_counts_classes(archive):
    class Always(nn.Module):
        def forward(self, clip):
            return torch.tensor([0.0, 1.0, 0.0]).expand(len(clip), 3)

    metrics = evaluate(Always(), clips_recipe(), archive=archive)
    labels = archive.label[archive.indices("test")]
    ones = int((labels == 1).sum())
    assert 0 < ones < 8
    assert metrics["accuracy"] == ones / 8
    assert metrics["accuracy_per_class"] == {"a": 0.0, "b": 1.0, "never": None}
    assert metrics["confusion"] == [[0, 8 - ones, 0], [0, ones, 0], [0, 0, 0]]
    assert metrics["dataset"] == "kth"
    assert metrics["sequences"] == {"test": 8}


def test_evaluate_tries_a_classifier_on_every_camera_motion(archive):
    class Moves(nn.Module):
        """Says "b" where the picture differs from itself at rest."""

        def forward(self, clip):
            moved = (clip[:, 1:] - clip[:, :-1]).abs().sum((1, 2, 3, 4)) > 0
            return torch.stack([~moved, moved, torch.zeros_like(moved)], 1).float()

    still = ClipArchive(
        "kth",
        archive.classes,
        archive.frames[::32].repeat_interleave(32, 0),
        archive.length,
        torch.zeros_like(archive.label),
        archive.subject,
        archive.start,
        clip=archive.clip,
        split=archive.split,
    )
    motions = evaluate(Moves(), clips_recipe(), archive=still)["accuracy_per_motion"]
    assert list(motions) == ["V^T_0", "V^T_1", "V^T_2"]
    assert motions["V^T_0"] == 1.0
    assert motions["V^T_1"] < 1.0
    assert motions["V^T_2"] < 1.0


def test_evaluate_spreads_over_clips_that_are_sorted(archive):
    data = TestData(clips_recipe(test_size=4), archive=archive)
    seen = [label for batch in data.batches(data.videos()) for label in batch.labels.tolist()]
    assert seen == archive.label[archive.indices("test")][::2].tolist()


def test_evaluate_names_what_is_missing_or_wrong(archive):
    with pytest.raises(ValueError, match="`archive` must be given for 'table2/kth/fernn-v1'"):
        evaluate(nn.Identity(), clips_recipe())

    class Many(nn.Module):
        def forward(self, clip):
            return torch.eye(9)[8].expand(len(clip), 9)

    with pytest.raises(ValueError, match="3 classes of 'kth', got class 8"):
        evaluate(Many(), clips_recipe(), archive=archive)


def hand_count(velocities, steps, decoded, canvas=28 * 28, channels=128):
    """FLOPs of a forecaster: recurrences, three decoder layers and the two thin convolutions."""
    conv = 2 * 9 * channels * channels * canvas
    thin = 2 * 9 * channels * canvas
    recurrent = 3 * (1 + (steps - 1) * velocities) * conv  # forward, by data, by weight
    decoder = 3 * decoded * (3 * conv + thin)
    driven = 2 * 19 * thin  # by weight too, but not by data: nobody asks for a video's gradient
    return recurrent + decoder + driven


def test_flops_per_sequence_is_the_hand_count():
    found = flops_per_sequence(find("table1/translation/fernn-v2-transported"))
    # The first step has h = 0 and needs no convolution, the second has one for all velocities; the
    # last prediction is not fed back.
    assert found == pytest.approx(hand_count(25, steps=18, decoded=10), rel=1e-3)
    published = flops_per_sequence(find("table1/translation/fernn-v2"))
    assert published == pytest.approx(341e9, rel=0.05)
    assert published == pytest.approx(hand_count(25, steps=19, decoded=10), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("table4/fernn-v2-mixing", 13.5e12),
        ("table4/fernn-v2-mixing-near", 5.1e12),  # by its taps; edges of V are not left out
        ("table2/kth/cnn3d", None),
        ("table2/kth/grnn", None),
    ],
)
def test_flops_per_sequence_of_other_models(name, expected):
    found = flops_per_sequence(recipes()[name])
    assert found > 1e8
    if expected is not None:
        assert found == pytest.approx(expected, rel=0.05)


def test_evaluation_gives_every_module_its_mode_back(recipe):
    model = recipe.build().train()
    model.decoder.eval()  # as what is frozen
    modes = [module.training for module in model.modules()]
    evaluation.sequence_errors(model, recipe, 1)
    assert [module.training for module in model.modules()] == modes
    assert True in modes
    assert False in modes
