"""Strips and animations: forecasts from kept weights, and clips under a moving camera."""

import numpy as np
import pytest
import torch
from drawn import draw, texts
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from synthetic import clip_metrics, forecast_metrics, write_forecasters, write_run

from fernn.data import ClipArchive
from fernn.experiments import figures, lacking, results, strips
from fernn.experiments.figures import Sources
from fernn.experiments.recipes import find, recipes
from fernn.experiments.results import Results

GRNN, FERNN = "table1/translation/grnn", "table1/translation/fernn-v2"


@pytest.fixture(scope="module")
def forecasters(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    torch.manual_seed(0)
    write_forecasters(out, [GRNN, FERNN, "fig5/translation/fernn-v2"])
    return results.load(out)


@pytest.mark.parametrize("number", ["4", "12", "14", "15"])
def test_strips_are_drawn_from_kept_weights(number, forecasters, tmp_path):
    figures.draw(number, forecasters, tmp_path / "strip.png")
    shown = texts(draw(number, forecasters))
    assert "truth" in shown
    assert ("error\nblue −1\nred +1" in shown) == (number != "14")
    assert "FERNN-$V^T_2$" in shown


def test_no_picture_is_wider_than_a_page(forecasters, tmp_path):
    for name in recipes():
        if name.startswith(("fig5", "fig6")):
            write_run(tmp_path, name, metrics=forecast_metrics(name))
        elif name.startswith("fig8/actions"):
            write_run(tmp_path, name, metrics=clip_metrics("mocap_actions", 0.75))
    every = Results((*forecasters.found, *results.load(tmp_path).found))
    for number in figures.FIGURES:
        for panel in figures.panels(number, every):
            assert panel.size[0] <= 6.5, number
    ((long,),) = [figures.panels("14", every)]
    figure = figures.compose([long])
    rows = 1 + 2  # the truth and two models
    assert len(figure.get_axes()) == 5 * rows
    above = [[t.get_text() for t in a.get_xticklabels()] for a in figure.get_axes()[::rows]]
    assert [time for band in above for time in band if time] == [
        *("-1", "0"),
        *(f"+{step}" for step in range(2, 71, 2)),
    ]


def test_a_curve_is_not_stretched_to_the_height_of_a_strip(forecasters):
    curve, strip = figures.panels("4", forecasters)
    assert strip.size[1] > 1.6 * curve.size[1]
    figure = figures.compose([curve, strip])
    FigureCanvasAgg(figure).draw()
    (axes, *_) = figure.get_axes()
    box = axes.get_window_extent()
    assert box.height < box.width


def test_labels_fit_beside_their_frames(forecasters):
    labels = {"FERNN-V^R_4, comoving transported": torch.zeros(1, 6, 6)}
    shown = strips.Forecast(torch.zeros(1, 6, 6), torch.zeros(1, 6, 6), labels)
    figure = Figure(figsize=(3, 3), layout="constrained")
    strips.strip(figure, shown, [0])
    words = [axes.get_ylabel() for axes in figure.get_axes()]
    assert words == ["truth", "FERNN-$V^R_4$\ncomoving\ntransported", "error\nblue −1\nred +1"]


def test_strip_has_both_readouts_of_the_fernn(tmp_path):
    part = "table1/rotation/"
    every = [name for name in recipes() if name.startswith(part)]
    for name in every:
        folder = write_run(tmp_path, name, metrics=forecast_metrics(name))
        (folder / "best.safetensors").touch()
    shown = figures.extremes("rotation", results.load(tmp_path), None)
    assert [run.name.removeprefix(part) for run in shown.runs.values()] == [
        *("grnn", "grnn-transported", "fernn-v4", "fernn-v4-transported"),
    ]


def test_figure15_moves_at_velocities_that_training_did_not_show(forecasters):
    (run,) = forecasters.named("fig5/translation/fernn-v2")
    trained = find(run.name, "quick").data.flow.velocities.tolist()
    fast = figures._samples.fastest(run).velocities.tolist()
    assert fast == [[0, -2], [0, 2]]
    assert all(velocity not in trained for velocity in fast)


def test_forecast_is_the_model_on_the_first_test_sequence(forecasters):
    run = forecasters.named(FERNN)[0]
    recipe = find(FERNN, "quick")
    made = strips.forecast({"model": run}, horizon=3)
    from fernn import load
    from fernn.data import FlowingMNIST

    frames = FlowingMNIST(recipe.data.test_flow, "test", length=8).batch([0], 0).frames
    with torch.no_grad():
        expected = load(run.folder / "best.safetensors").eval()(frames[:, :5], 3)[0, :, 0]
    torch.testing.assert_close(made.models["model"], expected)
    torch.testing.assert_close(made.truth, frames[0, 5:, 0])
    assert len(made.observed) == 5
    assert "moves" in made.caption or "rests" in made.caption


def test_forecast_from_the_cache_is_the_beginning_of_a_longer_one(forecasters, monkeypatch):
    runs, cache = {"model": forecasters.named(GRNN)[0]}, {}
    long = strips.forecast(runs, horizon=9, cache=cache)
    monkeypatch.setattr(strips.models, "load", lambda path: pytest.fail("forecast again"))
    short = strips.forecast(runs, horizon=4, cache=cache)
    torch.testing.assert_close(short.models["model"], long.models["model"][:4])
    monkeypatch.undo()
    fresh = strips.forecast(runs, horizon=4)
    torch.testing.assert_close(fresh.models["model"], short.models["model"])


def test_strip_of_a_run_without_weights_names_them(tmp_path):
    folder = write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    (panel, _) = figures.panels("12", results.load(tmp_path))
    assert panel.paint is None
    assert lacking.weights_of(FERNN) in panel.missing
    with pytest.raises(FileNotFoundError, match=r"without best\.safetensors"):
        strips.weights(results.load_one(folder))


def test_strip_of_other_weights_than_the_record_is_of_is_left_out(tmp_path):
    metrics, model = forecast_metrics(FERNN), find(FERNN, "quick").build()
    folder = write_run(tmp_path, FERNN, metrics=metrics, model=model, best_sha256="0" * 64)
    (panel, _) = figures.panels("12", results.load(tmp_path))
    assert panel.paint is None
    assert lacking.weights_of(FERNN) in panel.missing
    with pytest.raises(FileNotFoundError, match="or with another than its record is of"):
        strips.weights(results.load_one(folder))


def test_animation_shows_truth_models_and_errors(tmp_path):
    truth = torch.zeros(2, 6, 6)
    truth[:, :, 3:] = 1
    lost = torch.full((2, 6, 6), torch.nan)
    shown = strips.Forecast(
        torch.zeros(1, 6, 6), truth, {"FERNN-V^T_2, a": torch.ones(2, 6, 6), "lost": lost}
    )
    path = tmp_path / "new" / "forecast.gif"
    strips.animation(shown, path)
    with Image.open(path) as image:
        assert image.n_frames == 3
        assert image.info["loop"] == 0
        image.seek(1)
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    colours = {tuple(colour) for colour in pixels.tolist()}
    assert (255, 0, 0) in colours  # too bright is red,
    assert (0, 0, 255) not in colours  # and nothing is too dark


def test_clips_are_named_after_their_archive(tmp_path):
    archive = ClipArchive(
        "invented",
        ("walk",),
        torch.zeros(32, 32, 32, dtype=torch.uint8),
        *(torch.tensor([n]) for n in (32, 0, 0, 0)),
        clip=("a",),
        split=("test",),
    )
    archive.save(tmp_path / "clips.npz")
    sources = Sources(archive=tmp_path / "clips.npz")
    titles = [panel.title for panel in figures.panels("10", Results(()), sources=sources)]
    assert titles == [f"invented, which stands in for KTH, V^T_{radius}" for radius in (0, 1, 2)]
    assert isinstance(draw("7", Results(()), sources=sources), Figure)
