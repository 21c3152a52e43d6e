"""Figures: each from invented records, partly missing, and from nothing at all."""

import numpy as np
import pytest
from drawn import draw, lines, texts
from matplotlib.backends.backend_agg import FigureCanvasAgg
from synthetic import clip_metrics, forecast_metrics, write_forecasters, write_run

from fernn.experiments import figures, lacking, results, search
from fernn.experiments.figures import _velocity
from fernn.experiments.recipes import find, recipes
from fernn.experiments.results import Results

GRNN, FERNN = "table1/translation/grnn", "table1/translation/fernn-v2"


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
        what = command.removeprefix("  to get it: fernn reproduce ").partition(" --")[0].split()
        assert missing
        assert all(f"{name}/".startswith(tuple(f"{w}/" for w in what)) for name in missing)
        assert ("--clips FILE" in command) == (number == "8")


def test_a_panel_without_results_takes_no_room_and_is_named_below_the_others(tmp_path):
    write_run(tmp_path, GRNN, metrics=forecast_metrics(GRNN))
    found = results.load(tmp_path)
    assert figures.draw("3", found, tmp_path / "three.png") == [
        "missing: table1/translation/{fernn-v1, fernn-v2}",
        "missing: table1/rotation/{grnn, fernn-v2, fernn-v4}",
        "to get it: fernn reproduce table1/translation/fernn-v1 table1/translation/fernn-v2 "
        "table1/rotation/grnn table1/rotation/fernn-v2 table1/rotation/fernn-v4 "
        f"--scale short --data FOLDER --precision bf16-mixed --out {tmp_path}",
    ]
    figure = draw("3", found)
    assert len(figure.get_axes()) == 1
    lacks = "{fernn-v1, fernn-v2}, table1/rotation/{grnn, fernn-v2, fernn-v4}"
    assert f"not trained so: table1/translation/{lacks}" in " ".join(texts(figure).split())


def test_what_is_missing_is_the_variant_that_the_others_are(tmp_path):
    for end in ("grnn", "fernn-v1-transported"):
        name = f"table1/translation/{end}"
        write_run(tmp_path, name, metrics=forecast_metrics(name))
    turning = "table1/rotation/fernn-v4-comoving-transported"
    write_run(tmp_path, turning, metrics=forecast_metrics(turning))
    moved, turned = figures.panels("3", results.load(tmp_path))
    assert moved.missing == (f"{FERNN}-transported",)
    ends = ("grnn", "fernn-v2")
    assert turned.missing == tuple(f"table1/rotation/{e}-comoving-transported" for e in ends)
    write_run(tmp_path, "table1/rotation/grnn-comoving", metrics=forecast_metrics(turning))
    _, turned = figures.panels("3", results.load(tmp_path))
    assert turned.missing == ("table1/rotation/fernn-v2",)  # of two variants neither


def test_what_is_missing_is_said_once_with_its_command():
    names = [*(f"table1/rotation/{end}" for end in ("grnn", "fernn-v2", "grnn")), "table4/grnn"]
    nothing = Results(())
    command = "fernn reproduce table1/rotation/grnn table1/rotation/fernn-v2 table4/grnn"
    assert lacking.lines(names) == [
        "missing: table1/rotation/{grnn, fernn-v2}",
        "missing: table4/grnn",
    ]
    assert lacking.remedy(names, nothing) == f"{command} --scale quick"
    every = [name for name in recipes() if name.startswith(("fig5/translation/", "fig6/"))]
    named = "fernn reproduce fig5/translation fig6 table4/grnn --scale quick"
    assert lacking.remedy([*every, "table4/grnn"], nothing) == named
    short = lacking.remedy(["fig8/actions/v0/grnn"], nothing, "short")
    assert short == "fernn reproduce fig8/actions/v0/grnn --scale short --clips FILE"
    paper = lacking.remedy([GRNN], nothing, "paper")
    assert paper == f"fernn reproduce {GRNN} --scale paper --data FOLDER"
    weights = [lacking.weights_of(GRNN), lacking.weights_of(FERNN)]
    lost = "no frames: the weights of table1/translation/{grnn, fernn-v2} were not kept"
    assert lacking.lines(weights) == lacking.said(weights) == [lost]
    again = f"fernn reproduce {GRNN} {FERNN} --scale quick --out ANOTHER-FOLDER; or, "
    assert lacking.remedy(weights, nothing).startswith(again)
    memory = "memory, which is measured on a GPU"
    assert lacking.said(["runtime/v1", memory]) == [f"missing: runtime/v1, {memory}"]


def test_what_is_missing_is_made_beside_what_is_there(tmp_path):
    write_run(tmp_path, FERNN, scale="quick", metrics=forecast_metrics(FERNN, "quick"))
    changed = find(FERNN, "short").but(training={"epochs": 3})
    write_run(tmp_path, FERNN, recipe=changed, metrics=forecast_metrics(FERNN))
    made = lacking.remedy(["fig6/grnn"], results.load(tmp_path))
    like = f"--scale short --data FOLDER --precision bf16-mixed --out {tmp_path}"
    assert made == f"fernn reproduce fig6/grnn {like}"


def test_what_is_missing_is_made_of_the_same_data_in_the_same_way(tmp_path):
    names = [f"table2/actions/{end}" for end in ("grnn", "fernn-v1", "fernn-v2")]
    about = {"metrics": clip_metrics("mine"), "scale": "quick", "precision": "32-true"}
    write_run(tmp_path, names[0], **about, data="mine", data_sha256="a")
    way = f"fernn reproduce {names[1]} {names[2]} --scale quick --clips FILE --out {tmp_path}"
    assert lacking.remedy(names[1:], results.load(tmp_path)) == way
    forecast = f"fernn reproduce {GRNN} --scale quick --out {tmp_path}"
    assert lacking.remedy([GRNN], results.load(tmp_path)) == forecast  # digits of the package
    rate = find(names[0], "quick").training.learning_rate
    search.choose(tmp_path, find(names[0], "quick"), {rate: [0.5]})
    assert lacking.remedy(names[1:], results.load(tmp_path)) == f"{way} --search"


def test_a_figure_of_several_archives_names_them(tmp_path):
    for end, data in (("grnn", "mine"), ("fernn-v1", "other")):
        about = {"metrics": clip_metrics(data), "data": data, "data_sha256": data}
        write_run(tmp_path, f"fig8/actions/v0/{end}", **about)
    panel = figures.panels("8-actions", results.load(tmp_path))[0]
    assert panel.note.endswith("; not on the same data: mine, other")


def test_frames_of_other_digits_than_those_of_training_are_named(tmp_path):
    recipe = find(FERNN, "short")
    for seed, data in enumerate(("MNIST", "embedded digits")):
        folder, metrics = tmp_path / str(seed), forecast_metrics(FERNN)
        write_run(folder, FERNN, metrics=metrics, model=recipe.build(), data=data)
        note = figures.panels("14", results.load(folder))[0].note
        assert note.endswith("; frames are made of embedded digits, runs of MNIST") == (seed == 0)


@pytest.mark.parametrize(
    ("name", "start"), [("two.png", b"\x89PNG"), ("two.svg", b"<?xml"), ("two.pdf", b"%PDF")]
)
def test_figure2_is_the_counterexample_in_the_form_of_its_name(tmp_path, name, start):
    path = tmp_path / "new folder" / name
    assert figures.draw("2", Results(()), path) == []
    assert path.read_bytes().startswith(start)


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


def test_a_figure_takes_the_scale_of_most_models_and_the_largest_of_several(tmp_path):
    v1 = "table1/translation/fernn-v1"
    write_forecasters(tmp_path, [GRNN, v1, FERNN], scale="short")
    for name in (GRNN, v1):
        write_run(tmp_path, name, scale="paper", metrics=forecast_metrics(name, "paper"))
    curves, frames = figures.panels("4", results.load(tmp_path))
    assert "scale short" in curves.note
    assert "scale short" in frames.note
    assert curves.missing == frames.missing == ()
    # A variant is no further model, so these two rows are as many as those at scale paper.
    for name in (FERNN, f"{FERNN}-transported", GRNN, f"{GRNN}-transported"):
        write_run(tmp_path / "two", name, metrics=forecast_metrics(name))
    for name in (GRNN, v1):
        metrics = forecast_metrics(name, "paper")
        write_run(tmp_path / "two", name, scale="paper", metrics=metrics)
    curves, frames = figures.panels("4", results.load(tmp_path / "two"))
    assert curves.scale == frames.scale == "paper"
    assert frames.missing == (lacking.weights_of(GRNN), FERNN)


@pytest.mark.parametrize(
    ("number", "few", "many"),
    [
        ("3", "table1/translation", "table1/rotation"),
        ("5", "fig5/translation", "fig5/rotation"),
        ("8-actions", "fig8/actions/v0", "fig8/actions/v1"),
        ("12", "table1/translation", "table1/rotation"),
        ("15", "fig5/translation", "fig5/rotation"),
    ],
)
def test_all_panels_of_a_figure_are_at_one_scale(number, few, many, tmp_path):
    ends = ("grnn", "fernn-v1" if "fig8" in few else "fernn-v4")
    rows = [(f"{few}/grnn", "short"), *((f"{many}/{end}", "quick") for end in ends)]
    for name, scale in rows:
        clips = name.startswith("fig8")
        metrics = clip_metrics("mocap_actions") if clips else forecast_metrics(name, scale)
        model = find(name, scale).build() if number in ("12", "15") else None
        write_run(tmp_path, name, scale=scale, metrics=metrics, model=model)
    one, two = figures.panels(number, results.load(tmp_path), scale="quick")
    assert (one.paint, one.scale) == (None, "quick")
    assert "scale quick" in two.note
    assert number in ("12", "15") or "another, smaller task" in two.note
    assert f"{few}/grnn" in one.missing
    # More runs are quick, but those are of another, smaller task.
    one, two = figures.panels(number, results.load(tmp_path))
    assert (two.paint, two.scale) == (None, "short")
    assert "scale short" in one.note
    assert "smaller task" not in one.note


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


@pytest.mark.parametrize(("number", "part"), [("4", "translation"), ("13", "rotation")])
def test_names_of_curves_are_above_the_axes_and_inside_of_the_figure(number, part, tmp_path):
    for name in recipes():
        if name.startswith(f"table1/{part}/"):
            write_run(tmp_path, name, metrics=forecast_metrics(name))
    (panel, *_) = figures.panels(number, results.load(tmp_path))
    for _ in range(2):  # drawn once or twice, it is the same
        figure = figures.compose([panel])
        FigureCanvasAgg(figure).draw()
        (axes,) = figure.get_axes()
        legend = axes.get_legend()
        names = [text.get_text() for text in legend.get_texts()]
        assert names[-1] == "length of training"
        assert len(names) == len(axes.get_lines()) + 1 > 6
        here, inside = legend.get_window_extent(), axes.get_window_extent()
        assert inside.y1 - 1 <= here.y0  # clear of the curves
        assert here.y1 <= figure.bbox.y1
        assert figure.bbox.x0 <= here.x0
        assert here.x1 <= figure.bbox.x1


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


def test_every_grid_of_figure5_has_both_its_labels(tmp_path):
    for end in ("grnn", "fernn-v2"):
        name = f"fig5/translation/{end}"
        write_run(tmp_path, name, metrics=forecast_metrics(name))
    one, other, _ = draw("5", results.load(tmp_path)).get_axes()
    for axes in (one, other):
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("columns a frame", "rows a frame")


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


def test_both_readouts_of_many_models_have_axes_of_their_own(tmp_path):
    names = [name for name in recipes() if name.startswith("fig6/")]
    for name in names:
        write_run(tmp_path, name, metrics=forecast_metrics(name))
    published, transported = draw("6", results.load(tmp_path)).get_axes()
    for axes, ending in ((published, ""), (transported, ", transported")):
        *labels, _ = [text.get_text() for text in axes.get_legend().get_texts()]
        assert len(labels) == 4
        assert all(label.endswith(ending) for label in labels)
        assert sum(bar.get_width() < 1 for bar in axes.patches) == 44
    assert published.get_ylim() == transported.get_ylim()


@pytest.mark.parametrize("number", ["5", "6", "8-actions"])
def test_legends_stay_inside_the_picture(number, tmp_path):
    for name in recipes():
        if name.startswith(("fig5", "fig6")):
            write_run(tmp_path, name, metrics=forecast_metrics(name))
        elif name.startswith("fig8/actions"):
            write_run(tmp_path, name, metrics=clip_metrics("mocap_actions", 0.75))
    for panel in figures.panels(number, results.load(tmp_path)):
        figure = figures.compose([panel])
        FigureCanvasAgg(figure).draw()
        legends = [axes.get_legend() for axes in figure.get_axes() if axes.get_legend()]
        for box in (legend.get_window_extent() for legend in legends):
            assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
            assert 0 <= box.y0 < box.y1 <= figure.bbox.y1


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


def test_figure8_has_numbers_above_its_bars_and_the_most_frequent_class(tmp_path):
    metrics = clip_metrics("mocap_actions", 0.5)
    confusion = [[3, 3], [2, 0]]  # rows are the truth: six of eight are of one class
    for end, seed, accuracy in (("grnn", 0, 0.4), ("grnn", 1, 0.6), ("cnn3d", 0, 1.0)):
        per_motion = dict.fromkeys(metrics["accuracy_per_motion"], accuracy)
        found = metrics | {"accuracy_per_motion": per_motion, "confusion": confusion}
        write_run(tmp_path, f"fig8/actions/v0/{end}", seed=seed, metrics=found)
    (axes,) = draw("8-actions", results.load(tmp_path)).get_axes()
    tops = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert tops[".50"] > 0.64  # above the standard deviation of its two seeds
    assert 1 < tops["1.00"] < tops["unseen"] - 0.1
    (line,) = (line for line in axes.get_lines() if line.get_linestyle() == "--")
    assert list(line.get_ydata()) == [0.75, 0.75]
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["3D-CNN", "G-RNN", "most frequent class, 0.75"]


@pytest.mark.parametrize("other", [{}, {"confusion": [[1, 1], [1, 1]]}])
def test_figure8_has_no_most_frequent_class_where_records_do_not_agree(other, tmp_path):
    for end, more in (("grnn", {"confusion": [[3, 3], [1, 1]]}), ("cnn3d", other)):
        metrics = clip_metrics("mocap_actions")
        del metrics["confusion"]
        write_run(tmp_path, f"fig8/actions/v0/{end}", metrics=metrics | more)
    assert "most frequent" not in texts(draw("8-actions", results.load(tmp_path)))


def test_figure11_fits_a_line(tmp_path):
    for number in (1, 2, 4):
        name = f"runtime/v{number}"
        memory = (3 * number + 1) * 2**30
        write_run(tmp_path, name, metrics={}, peak_memory_bytes=memory)
    assert "3 |V| + 1" in lines(draw("11", results.load(tmp_path)))
    assert "20 |V|" not in lines(draw("11", results.load(tmp_path)))
    time, _ = figures.panels("11", results.load(tmp_path))
    assert time.missing == tuple(f"runtime/v{number}" for number in (3, *range(5, 12)))


def test_figure11_without_memory_says_so(tmp_path):
    write_run(tmp_path, "runtime/v1", metrics={}, peak_memory_bytes=None)
    time, memory = figures.panels("11", results.load(tmp_path))
    assert time.paint is not None
    assert memory.paint is None
    assert "memory, which is measured on a GPU" in memory.missing


def test_figure_refuses_what_it_does_not_know(tmp_path):
    with pytest.raises(ValueError, match="Did you mean 8-actions"):
        figures.panels("8-action", Results(()))
    with pytest.raises(ValueError, match="one of 2, 3, 4, 5, 6, 7, 8, 8-actions, 9, 10, 11, 12, "):
        figures.panels("99", Results(()))
    with pytest.raises(ValueError, match=r"`scale` must be .* got 'shrt'. Did you mean short"):
        figures.panels("3", Results(()), scale="shrt")
    with pytest.raises(ValueError, match=r"`scale` must be"):
        figures.draw("2", Results(()), tmp_path / "2.png", scale="shrt")
    with pytest.raises(ValueError, match=r"`out` must end with .png, .svg or .pdf"):
        figures.draw("3", Results(()), tmp_path / "figure.jpg")
    assert not list(tmp_path.iterdir())
