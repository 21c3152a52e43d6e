"""Figures: each from invented records, partly missing, and from nothing at all."""

import matplotlib
import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image
from synthetic import clip_metrics, forecast_metrics, write_forecasters, write_run

from fernn.data import ClipArchive
from fernn.experiments import figures, lacking, results, strips
from fernn.experiments.figures import Sources, _velocity
from fernn.experiments.recipes import find, recipes
from fernn.experiments.results import Results

GRNN, FERNN = "table1/translation/grnn", "table1/translation/fernn-v2"


def lines(figure):
    """Label to data of every labelled line."""
    return {
        line.get_label(): line.get_xydata()
        for axes in figure.get_axes()
        for line in axes.get_lines()
        if not line.get_label().startswith("_")
    }


def texts(figure):
    return " ".join(text.get_text() for text in figure.findobj(matplotlib.text.Text))


def draw(number, found, **options):
    return figures.compose(figures.panels(number, found, **options))


@pytest.mark.parametrize("number", figures.FIGURES)
def test_figure_of_nothing_says_what_is_missing(number, tmp_path):
    path = tmp_path / "new" / "figure.png"
    made = figures.panels(number, Results(()))
    with pytest.raises(FileNotFoundError, match=f"figure {number} has nothing to draw") as error:
        figures.draw(number, Results(()), path)
    assert not path.parent.exists()  # a picture of nothing is none
    told = str(error.value).splitlines()
    missing = [name for panel in made for name in panel.missing]
    assert [line.split()[0] for line in told[1:]] == [
        *(["missing:"] * len(lacking.grouped(missing))),
        "to",
    ]
    command = told[-1]
    if number in ("7", "10"):
        assert "fernn data prepare kth" in command
    else:
        what = command.removeprefix("  to get it: fernn reproduce ").split(" ")[0]
        assert missing
        assert all(f"{name}/".startswith(f"{what}/") for name in missing)
        assert ("--clips FILE" in command) == (number == "8")


def test_a_panel_without_results_says_so_beside_one_that_has_some(tmp_path):
    write_run(tmp_path, GRNN, metrics=forecast_metrics(GRNN))
    found = results.load(tmp_path)
    assert figures.draw("3", found, tmp_path / "three.png") == [
        "missing: table1/translation/{fernn-v1, fernn-v2}",
        "missing: table1/rotation/{grnn, fernn-v2, fernn-v4}",
        "to get it: fernn reproduce table1 --scale short --data FOLDER",
    ]
    shown = texts(draw("3", found))
    assert "nothing to draw yet" in shown
    assert "table1/rotation/{grnn, fernn-v2, fernn-v4}" in shown


def test_what_is_missing_is_said_once_with_its_command():
    names = [*(f"table1/rotation/{end}" for end in ("grnn", "fernn-v2", "grnn")), "table4/grnn"]
    assert lacking.lines({None: names, "short": names[:2]}) == [
        "missing: table1/rotation/{grnn, fernn-v2}",
        "missing: table4/grnn",
        "to get it: fernn reproduce all --scale quick",
        "to get it: fernn reproduce table1/rotation --scale short --data FOLDER",
    ]
    short = lacking.remedy(["fig8/actions/v0/grnn"], "short")
    assert short == "fernn reproduce fig8/actions/v0/grnn --scale short --clips FILE"
    assert lacking.remedy([GRNN], "paper") == f"fernn reproduce {GRNN} --scale paper --data FOLDER"
    weights = lacking.lines({"quick": [lacking.weights_of(GRNN), lacking.weights_of(FERNN)]})
    assert weights[0] == "missing: best.safetensors of table1/translation/{grnn, fernn-v2}"
    assert "copy best.safetensors" in weights[1]


def test_figure2_is_the_counterexample(tmp_path):
    assert figures.draw("2", Results(()), tmp_path / "two.png") == []
    assert (tmp_path / "two.png").read_bytes().startswith(b"\x89PNG")


def test_figure3_draws_the_mean_over_seeds(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path, GRNN, seed=seed, metrics=forecast_metrics(GRNN))
    panels = figures.panels("3", results.load(tmp_path))
    drawn = lines(figures.compose(panels[:1]))
    assert list(drawn) == ["G-RNN"]
    steps, losses = drawn["G-RNN"].T
    assert steps.tolist() == [10, 20, 30, 40]
    expected = [(1 / e + 1 / (e + 1)) / 2 for e in range(1, 5)]
    np.testing.assert_allclose(losses, expected)
    assert panels[0].missing == ("table1/translation/fernn-v1", FERNN)
    assert panels[1].paint is None
    assert "2 seeds" in panels[0].note


def test_figures_compare_models_at_one_scale(tmp_path):
    for name in (GRNN, FERNN):
        write_run(tmp_path, name, metrics=forecast_metrics(name))
    write_run(tmp_path, GRNN, scale="paper", metrics=forecast_metrics(GRNN))
    found = results.load(tmp_path)
    assert "scale short" in figures.panels("3", found)[0].note
    paper = figures.panels("3", found, scale="paper")[0]
    assert "scale paper" in paper.note
    assert FERNN in paper.missing


def test_figure4_and_13_show_sixty_steps(tmp_path):
    rotation = "table1/rotation/fernn-v4-comoving-transported"
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN, mse=2e-3))
    write_run(tmp_path, rotation, metrics=forecast_metrics(rotation))
    found = results.load(tmp_path)
    drawn = lines(figures.compose(figures.panels("4", found)[:1]))["FERNN-$V^T_2$"]
    assert drawn.shape == (60, 2)
    np.testing.assert_allclose(drawn[-1], [60, 2e-3 * 60])
    assert lines(draw("13", found)).keys() == {"FERNN-$V^R_4$, comoving transported"}
    write_run(tmp_path, f"{FERNN}-transported", metrics=forecast_metrics(FERNN))
    (both, *_) = figures.panels("4", results.load(tmp_path))
    assert list(lines(figures.compose([both]))) == ["FERNN-$V^T_2$", "FERNN-$V^T_2$, transported"]


@pytest.mark.parametrize(("number", "name"), [("4", FERNN), ("13", "table1/rotation/fernn-v4")])
def test_label_of_the_trained_steps_is_whole_and_above_the_axes(number, name, tmp_path):
    metrics = forecast_metrics(name)
    metrics["mse_per_step"] = [1e-3] * 2  # a span that is narrower than the word
    write_run(tmp_path, name, metrics=metrics)
    (panel, *_) = figures.panels(number, results.load(tmp_path))
    for _ in range(2):  # drawn once or twice, it is the same
        figure = figures.compose([panel])
        FigureCanvasAgg(figure).draw()
        (axes,) = figure.get_axes()
        (word,) = [text for text in axes.texts if text.get_text() == "trained"]
        here, inside = word.get_window_extent(), axes.get_window_extent()
        assert inside.x0 <= here.x0
        assert here.x1 <= inside.x1
        assert inside.y1 - 1 <= here.y0  # above the axes, so clear of the legend
        assert here.y1 <= figure.bbox.y1


def test_errors_by_velocity_are_means_over_seeds(tmp_path):
    name = "fig5/translation/grnn"
    for seed, mse in enumerate((1.0, 3.0)):
        write_run(tmp_path, name, seed=seed, metrics=forecast_metrics(name, mse=mse))
    table = _velocity.errors(list(results.load(tmp_path).found))
    assert len(table) == 25
    assert table[(-2, -2)] == 2.0
    assert table[(2, 2)] == 50.0


def test_figures_of_forecasts_that_ran_away(tmp_path):
    for name in (FERNN, "fig5/translation/grnn", "fig5/rotation/grnn"):
        metrics = forecast_metrics(name)
        metrics["mse_per_step_long"][30:] = [None] * 40
        metrics["mse_per_velocity"][0]["mse"] = None
        write_run(tmp_path, name, metrics=metrics)
    found = results.load(tmp_path)
    steps = lines(figures.compose(figures.panels("4", found)[:1]))["FERNN-$V^T_2$"][:, 1]
    assert np.isfinite(steps).sum() == 30
    figures.draw("5", found, tmp_path / "five.png")
    assert len(_velocity.errors(found.named("fig5/translation/grnn"))) == 24


def test_figure5_is_a_grid_for_planes_and_bars_for_turns(tmp_path):
    for name in ("fig5/translation/fernn-v2", "fig5/rotation/fernn-v4"):
        write_run(tmp_path, name, metrics=forecast_metrics(name))
    plane, turns = figures.panels("5", results.load(tmp_path))
    (image, *_) = [i for a in figures.compose([plane]).get_axes() for i in a.get_images()]
    assert image.get_array().shape == (5, 5)
    np.testing.assert_allclose(image.get_array()[0, 1], 2e-3)  # ν = (−2, −1) is the second
    (axes,) = figures.compose([turns]).get_axes()
    hatched = [bool(bar.get_hatch()) for bar in axes.patches if bar.get_height() > 0]
    # ±50° is in the test, but not in V^R_4.
    assert hatched[:11] == [True] + [False] * 9 + [True]
    *_, explained = axes.get_legend().legend_handles
    assert explained.get_hatch()
    assert explained.get_label() == "ν not in the model's V"
    assert "white frame: velocities of training" in plane.note


def test_figure6_hatches_velocities_outside_of_the_model(tmp_path):
    for name in ("fig6/grnn", "fig6/fernn-3", "fig6/fernn-11"):
        write_run(tmp_path, name, metrics=forecast_metrics(name))
    figure = draw("6", results.load(tmp_path))
    (axes,) = figure.get_axes()
    bars = [bar for bar in axes.patches if bar.get_width() < 1]
    assert len(bars) == 33
    assert [sum(not bar.get_hatch() for bar in bars[i : i + 11]) for i in (0, 11, 22)] == [1, 3, 11]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["V = {0}", "V = {0, ±3}", "V = [−5, 5]", "ν not in the model's V"]
    assert "fig6/fernn-7" in texts(figure)


def test_figure8_keeps_the_stand_in_apart(tmp_path):
    write_run(tmp_path, "fig8/actions/v0/grnn", metrics=clip_metrics("mocap_actions", 0.75))
    write_run(tmp_path, "fig8/kth/v1/grnn", metrics=clip_metrics("mocap_actions", 0.25))
    found = results.load(tmp_path)
    assert all(panel.paint is None for panel in figures.panels("8", found))
    still, _ = figures.panels("8-actions", found)
    (axes,) = figures.compose([still]).get_axes()
    assert [bar.get_height() for bar in axes.patches if bar.get_width() < 1] == [0.75] * 3
    assert "KTH" in still.title
    assert "stand in" in still.title


def test_figure11_fits_a_line(tmp_path):
    for number in (1, 2, 4):
        name = f"runtime/v{number}"
        memory = (3 * number + 1) * 2**30
        write_run(tmp_path, name, metrics={}, peak_memory_bytes=memory)
    assert "3 |V| + 1" in lines(draw("11", results.load(tmp_path)))
    assert "20 |V|" not in lines(draw("11", results.load(tmp_path)))


def test_figure11_without_memory_says_so(tmp_path):
    write_run(tmp_path, "runtime/v1", metrics={}, peak_memory_bytes=None)
    time, memory = figures.panels("11", results.load(tmp_path))
    assert time.paint is not None
    assert memory.paint is None
    assert "memory in the records" in memory.missing


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
    assert ("error" in shown) == (number != "14")
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
    assert words == ["truth", "FERNN-$V^R_4$\ncomoving\ntransported", "error"]


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
    assert f"best.safetensors of {FERNN}" in panel.missing
    with pytest.raises(FileNotFoundError, match=r"without best\.safetensors"):
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


def test_figure_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 8-actions"):
        figures.panels("8-action", Results(()))
    with pytest.raises(ValueError, match="one of 2, 3, 4, 5, 6, 7, 8, 8-actions, 9, 10, 11, 12, "):
        figures.panels("99", Results(()))
    with pytest.raises(ValueError, match=r"`scale` must be .* got 'shrt'. Did you mean short"):
        figures.panels("3", Results(()), scale="shrt")
    with pytest.raises(ValueError, match=r"`out` must end with .png, .svg or .pdf"):
        figures.draw("3", Results(()), tmp_path / "figure.jpg")
    assert not list(tmp_path.iterdir())
