"""Recipes: every row of the paper, complete, frozen, written to JSON and back, and runnable."""

import dataclasses
import functools
import json

import pytest
import torch

from fernn.data import ClipArchive
from fernn.experiments import datasets
from fernn.experiments.recipes import (
    SCALES,
    Training,
    changed,
    find,
    from_json,
    recipes,
    to_json,
)
from fernn.flows import Rotation, Translation
from fernn.groups import SE2

EVERY = recipes()
# Every construct has its count, worked out by hand from the layers' shapes.
CONV = 128 * 128 * 9
FORECASTER = 128 * 9 + CONV + 3 * (CONV + 128) + 128 * 9 + 1


def test_every_row_of_the_paper_has_a_recipe():
    assert len(EVERY) == 106
    rows = {
        "table1/translation": 6,
        "table1/rotation": 12,
        "table2/kth": 5,
        "table2/actions": 5,
        "table3/kth": 5,
        "table3/actions": 5,
        "table4": 4,
        "table5/kth": 5,
        "table5/actions": 5,
        "fig5": 8,
        "fig6": 8,
        "fig8/kth": 10,
        "fig8/actions": 10,
        "larger": 3,
        "runtime": 11,
        "wrapper": 4,
    }
    found = {start: sum(n.startswith(start + "/") for n in EVERY) for start in rows}
    assert found == rows


@pytest.mark.parametrize("scale", SCALES)
def test_a_recipe_survives_json(scale):
    for recipe in EVERY.values():
        scaled = recipe.at(scale)
        plain = json.loads(json.dumps(to_json(scaled)))
        assert from_json(plain) == scaled
        assert hash(from_json(plain)) == hash(scaled)
        assert plain == to_json(scaled)


def _parameters(recipe):
    if recipe.options.get("mixing") is not None:  # it tabulates velocities, which needs values
        model = recipe.build()
    else:
        with torch.device("meta"):
            model = recipe.build()
    return sum(p.numel() for p in model.parameters())


def test_paper_models_have_the_published_numbers_of_parameters():
    counts = {name: _parameters(recipe) for name, recipe in EVERY.items()}
    for name, recipe in EVERY.items():
        hidden, mixing = recipe.options.get("hidden_channels"), recipe.options.get("mixing")
        if recipe.model == "Forecaster" and hidden == 128 and mixing is None:
            assert counts[name] == FORECASTER, name
    assert counts["table4/fernn-v2-mixing"] == FORECASTER + 80 * CONV  # 81 differences, not one
    assert counts["table4/fernn-v2-mixing-near"] == FORECASTER + 8 * CONV
    assert 8 * 8 * 0.98 < counts["larger/mnist"] / FORECASTER < 8 * 8
    assert counts["table2/kth/cnn3d"] == pytest.approx(209_000, rel=0.01)
    for row in ("grnn", "fernn-v1", "fernn-v2"):
        assert counts[f"table2/kth/{row}"] == pytest.approx(242_000, rel=0.01)
        assert counts[f"table2/kth/{row}"] == counts["table2/kth/grnn"]
    assert counts["table2/kth/grnn-plus"] == counts["table2/kth/grnn"] + 625
    assert 600 < counts["larger/kth"] / counts["table2/kth/grnn"] < 625
    rotation = {counts[f"table1/rotation/{row}"] for row in ("grnn", "fernn-v2", "fernn-v4")}
    assert len(rotation) == 1  # V costs no parameters
    # The decoder is an ordinary network on 36·32 = 1152 channels.
    decoder = 3 * (1152 * 1152 * 9 + 1152) + 1152 * 9 + 1
    assert decoder < rotation.pop() < 1.02 * decoder


def test_table_1_is_as_published():
    recipe = find("table1/translation/fernn-v2")
    assert recipe.options["flow"] == Translation(radius=2) == recipe.data.flow
    assert recipe.options["readout"] == "published"
    assert recipe.training == Training(50, 128, 1e-4, clip=1.0)
    rotation = find("table1/rotation/fernn-v4")
    assert rotation.options["flow"] == Rotation(count=4, group=SE2(36))
    assert rotation.options["frame"] == "lab"
    assert rotation.training == Training(50, 32, 1e-4)
    mine = find("table1/rotation/fernn-v4-comoving-transported")
    assert mine.options["flow"] == Rotation(count=4)
    assert (mine.options["frame"], mine.options["readout"]) == ("comoving", "transported")
    assert (recipe.published.mean, rotation.published.mean) == (1.5e-4, 6.1e-4)


def test_figures_train_and_test_on_different_velocities():
    fig5 = find("fig5/rotation/fernn-v4")
    assert (fig5.data.flow, fig5.data.test_flow) == (Rotation(count=1), Rotation(count=5))
    sets = [find(f"fig6/{name}").options["flow"] for name in ("grnn", "fernn-3", "fernn-7")]
    assert [len(flow) for flow in sets] == [1, 3, 7]
    assert find("fig8/kth/v0/grnn").data.flow == Translation(radius=0)
    assert [len(find(f"runtime/v{n}").options["flow"]) for n in range(1, 12)] == [*range(1, 12)]


def test_a_stand_in_never_has_published_values():
    for name, recipe in EVERY.items():
        if "/actions" in name:
            assert recipe.published.mean is None
            assert "Moving KTH" not in recipe.published.where
            assert recipe.data.archive == "actions"


def test_short_keeps_the_model():
    recipe = find("table1/translation/fernn-v2")
    short = recipe.at("short")
    assert short.options == recipe.options
    assert (short.training.epochs, short.training.schedule) == (10, "cosine")
    with pytest.raises(ValueError, match='must be at scale "paper"'):
        short.at("quick")
    with pytest.raises(ValueError, match="`scale` must be one of"):
        recipe.at("long")


@pytest.mark.parametrize(
    ("name", "epochs", "rate", "clip"),
    [
        ("table1/translation/fernn-v2", 10, 1e-3, 1.0),  # the paper's own clip
        ("table1/rotation/fernn-v4", 10, 5e-4, 0.1),  # a quarter of the batch
        ("table2/actions/fernn-v2", 50, 3e-4, None),
        ("runtime/v3", 1, 1e-3, 1.0),
    ],
)
def test_short_trains_faster_on_a_schedule(name, epochs, rate, clip):
    training = find(name, "short").training
    assert (training.epochs, training.clip) == (epochs, clip)
    assert training.learning_rate == pytest.approx(rate)
    assert (training.schedule, training.warmup) == ("cosine", 0.05)


@functools.cache
def _archive(size=32, more=()):
    """Clips of noise, as many of each class in every split but of those that are named as more."""
    clips = 48
    generator = torch.Generator().manual_seed(0)
    frames = torch.randint(0, 255, (clips * 32, size, size), dtype=torch.uint8, generator=generator)
    number = torch.arange(clips)
    split = ("train",) * 36 + ("val",) * 6 + ("test",) * 6
    names = tuple(str(i) for i in range(clips))
    numbers = (torch.full((clips,), 32), number % 6, number, number * 0)
    classes = ("walk", "jog", "run", "box", "wave", "clap", *more)
    return ClipArchive("made", classes, frames, *numbers, clip=names, split=split)


@pytest.mark.parametrize("name", EVERY)
def test_quick_twin_takes_a_step(name):
    recipe = EVERY[name].at("quick")
    clips = recipe.data.kind == "clips"
    archive = (_archive() if "/kth" in name else datasets.clips(recipe, None)) if clips else None
    videos = datasets.videos(recipe, "train", archive=archive)
    batch = videos.batch([0, 1], epoch=0)
    model = recipe.build()
    if recipe.task == "forecast":
        observed, horizon = recipe.data.observed, recipe.data.horizon
        loss = (model(batch.frames[:, :observed], horizon) - batch.frames[:, observed:]).square()
    else:
        loss = torch.nn.functional.cross_entropy(model(batch.frames), batch.labels)
    loss.mean().backward()
    assert all(p.grad is not None for p in model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    torch.optim.Adam(model.parameters(), lr=recipe.training.learning_rate).step()
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_glimpses_are_what_quick_recipes_expect():
    archive = datasets.clips(find("table2/actions/grnn", "quick"), None)
    for name, recipe in EVERY.items():
        if recipe.data.archive == "actions":
            quick = recipe.at("quick")
            assert quick.data.canvas == tuple(archive.frames.shape[1:]), name
            assert quick.options["classes"] == len(archive.classes), name


def test_glimpses_differ_in_time_alone():
    """Any one frame of a still clip is like one of a flickering clip; their sequences are not."""
    archive = datasets.clips(find("table2/actions/grnn", "quick"), None)
    assert [len(archive.indices(split)) for split in ("train", "val", "test")] == [360, 120, 240]
    shown = {}
    for kind, name in enumerate(archive.classes):
        clips = torch.stack([archive[i] for i in range(len(archive)) if archive.label[i] == kind])
        frames = clips[:, ::2].float()
        again = (frames[:, 1:] - frames[:, :-1]).abs().mean() / frames.mean()
        shown[name] = (float(frames[:, 0].mean()), float(again))
    assert shown["still"][0] == pytest.approx(shown["flicker"][0], rel=0.05)
    assert shown["still"][1] == 0
    assert shown["flicker"][1] > 1
    assert shown["blink"][1] > 1


def test_set_is_typed():
    recipe = find("table1/translation/fernn-v2", "quick")
    made = changed(
        recipe,
        [
            "training.epochs=3",
            "training.learning_rate=1",
            "training.clip=none",
            "data.canvas=(28, 30)",
            "options.mixing=full",
            "options.flow=Rotation(count=1, group=SE2(4))",
        ],
    )
    assert made.training == Training(3, recipe.training.batch_size, 1.0, "cosine", None)
    assert made.data.canvas == (28, 30)
    assert made.options["mixing"] == "full"
    assert made.options["flow"] == Rotation(count=1, group=SE2(4))
    assert recipe == find("table1/translation/fernn-v2", "quick")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.epoch=3", "Did you mean training.epochs"),
        ("training.lr=3", r"The keys are .*training\.learning_rate"),
        ("options.hidden=3", "Did you mean options.hidden_channels"),
        ("epochs", "must be key=value"),
        ("training.epochs=many", "`training.epochs` must be int, got 'many'"),
        ("training.epochs=3.5", "`training.epochs` must be int"),
        ("training.epochs=0", "`training.epochs` must be a positive integer, got 0"),
        ("training.learning_rate=-1", "must be a positive number"),
        ("training.schedule=linear", "`training.schedule` must be one of"),
        ("data.redraw=1", "`data.redraw` must be bool"),
        ("data.train_size=true", "must be int or None"),
        ("data.canvas=28", "`data.canvas` must be tuple"),
        ("data.flow=Translation(radius=-1)", "cannot make"),
        ("data.flow=Translation(radius=x)", "make .*: x is no number, text in quotes or list"),
        ("options.flow=__import__('os')", "a flow such as"),
    ],
)
def test_set_refuses(setting, message):
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        changed(find("table1/translation/fernn-v2"), [setting])


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ValueError, match=r"Did you mean table1/translation/fernn-v2\?"):
        find("table1/translation/fern-v2")


def test_a_recipe_is_frozen():
    recipe = find("table1/translation/fernn-v2")
    with pytest.raises(TypeError):
        recipe.options["hidden_channels"] = 1
    with pytest.raises(ValueError, match="what a run wrote"):
        from_json({"name": "x"})


def test_a_recipe_takes_its_own_clips(tmp_path):
    path = tmp_path / "clips.npz"
    _archive().save(path)
    assert datasets.clips(find("table2/actions/grnn"), path).name == "made"
    with pytest.raises(ValueError, match="must be the archive that"):
        datasets.clips(find("table2/kth/grnn"), path)
    with pytest.raises(ValueError, match="`--clips` must be given"):
        datasets.clips(find("table2/actions/grnn"), None)
    with pytest.raises(ValueError, match="`--clips` must be given"):
        datasets.clips(find("table2/kth/grnn", "quick"), None)
    _archive(size=24).save(path)
    with pytest.raises(ValueError, match=r"frames of \(32, 32\).*--set 'data.canvas=\(24, 24\)'"):
        datasets.clips(find("table2/actions/grnn"), path)
    _archive(more=("dance", "fall")).save(path)
    for name in ("table2/actions/grnn", "table2/actions/cnn3d"):
        with pytest.raises(ValueError, match=r"the 6 classes .*got 8 .*--set options.classes=8"):
            datasets.clips(find(name), path)
        assert len(datasets.clips(changed(find(name), ["options.classes=8"]), path).classes) == 8
    assert datasets.clips(find("table4/grnn"), None) is None


def test_kth_is_whole_or_not_kth(tmp_path):
    path = tmp_path / "kth.npz"
    dataclasses.replace(_archive(), name="kth").save(path)
    assert datasets.clips(find("table2/kth/grnn", "quick"), path).name == "kth"
    with pytest.raises(ValueError, match="all of KTH at scale 'paper', 2370 clips, got 48"):
        datasets.clips(find("table2/kth/grnn"), path)


def test_learning_rate_rises_then_falls() -> None:
    training = Training(1, 8, 1e-3, schedule="cosine", warmup=0.1)
    rates = [training.rate(step, 1000) for step in range(1000)]
    assert rates[0] == pytest.approx(1e-5)
    assert rates.index(max(rates)) == 99
    assert rates[200:] == [Training(1, 8, 1e-3, "cosine").rate(s, 1000) for s in range(200, 1000)]
    assert rates[750] == pytest.approx(1e-3 * (1 - 0.5**0.5) / 2)
    assert 0 < rates[-1] < 1e-8
    assert Training(1, 8, 1e-3, warmup=0.1).rate(500, 1000) == 1e-3


@pytest.mark.parametrize("warmup", [-0.1, 1.0])
def test_warmup_is_a_share(warmup: float) -> None:
    with pytest.raises(ValueError, match=r"`training.warmup` must be a share"):
        Training(1, 8, 1e-3, warmup=warmup)


@pytest.mark.parametrize("name", ["", "/etc/runs", "../runs", "table1/../../runs", "a//b", "a\\b"])
def test_a_name_stays_below_the_folder_of_all_runs(name):
    with pytest.raises(ValueError, match="`name` must be words between slashes"):
        find("table4/grnn").but(name=name)
