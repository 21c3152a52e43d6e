"""`fernn evaluate`, `fernn table`, `fernn figure` and `fernn report`."""

import json
import subprocess
import sys

import pytest
from synthetic import clip_metrics, forecast_metrics, recipe_of, write_run
from typer.testing import CliRunner

from fernn import Translation, cli
from fernn.experiments import progress, records, runs, search
from fernn.experiments.evaluate import evaluate
from fernn.experiments.recipes import changed, find, recipes
from fernn.models import pretrained_record

FERNN = "table1/translation/fernn-v2"
GRNN = "translating-mnist/grnn"


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(cli.app, [str(word) for word in words])


@pytest.fixture
def run(tmp_path):
    flow = Translation(velocities=[(0, 0), (0, 1)])
    recipe = find(FERNN, "quick").but(
        data={"flow": flow, "test_flow": flow, "observed": 2, "horizon": 2, "test_size": 2},
        options={"flow": flow, "hidden_channels": 2},
    )
    model = recipe.build()
    metrics = evaluate(model, recipe)
    return write_run(
        tmp_path / "runs", FERNN, scale="quick", recipe=recipe, metrics=metrics, model=model
    )


def test_evaluate_gives_what_the_run_recorded(run, invoke):
    before = (run / runs.RECORD).read_bytes()
    result = invoke("evaluate", run, "--json")
    assert result.exit_code == 0, result.output
    recorded = runs.read_json(run / runs.RECORD)["metrics"]
    assert json.loads(result.output) == {"measured": recorded, "recorded": recorded}
    assert (run / runs.RECORD).read_bytes() == before
    text = invoke("evaluate", run).output
    assert "test mse" in text
    assert "last of 70" in text
    assert "over 2 velocities" in text
    assert recipe_of(run).data.horizon == 2


def test_evaluate_shows_how_far_it_is(run, invoke, monkeypatch):
    assert invoke("evaluate", run).stderr == ""  # over before a line is due
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    lines = invoke("evaluate", run, "--json").stderr.splitlines()
    assert lines[0] == "test split, 0 of 2 sequences  0%  ETA 0:00:00"
    assert lines[-1].startswith("velocity 2 of 2, 0 of 2 sequences  95%  ETA 0:00:0")
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich, a terminal
    result = invoke("evaluate", run, "--json")
    assert "velocity 2 of 2, 0 of 2 sequences" in result.stderr
    assert json.loads(result.stdout)["measured"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "agrees with its record: largest relative difference 0"),
        ({"mse_per_step": 0.99}, "agrees with its record: largest relative difference 0.01, in"),
        (
            {"test_mse": 0.5},
            "differs from its record: largest relative difference 0.5, in test mse",
        ),
        ({"mse_per_step_long": 0.5}, "agrees with its record: largest relative difference 0"),
        ({"dataset": "MNIST"}, ", recorded MNIST"),
        ({"test_mse": None}, ", recorded not finite"),
        ({"sequences": {"test": 9}}, ", recorded test 9"),
    ],
)
def test_evaluate_says_whether_it_agrees_with_the_record(changes, said, run, invoke):
    record = runs.read_json(run / runs.RECORD)
    for name, value in changes.items():
        was = record["metrics"][name]
        if isinstance(value, float):  # a share of what it was
            value = [value * item for item in was] if isinstance(was, list) else value * was
        record["metrics"][name] = value
    records.write(run / runs.RECORD, record)
    (line,) = (
        line for line in invoke("evaluate", run).output.splitlines() if " its record: " in line
    )
    assert said in line
    if "recorded" in said:
        assert line.startswith(
            f"differs from its record: {next(iter(changes)).replace('_', ' ')} is "
        )


def test_evaluate_names_what_a_run_lacks(run, invoke, tmp_path):
    (run / runs.BEST).unlink()
    alone = str(invoke("evaluate", run).exception)
    assert "a record alone" in alone
    assert "in the package" not in alone
    (run / runs.RECIPE).unlink()  # as records are kept in a repository
    assert "without best.safetensors" in str(invoke("evaluate", run).exception)
    assert "`run` must be" in str(invoke("evaluate", tmp_path / "nowhere").exception)


def test_evaluate_names_the_weights_of_a_record_in_the_package(invoke, tmp_path):
    later = ("weights", "check")  # what publishing added to the record of the run
    record = {key: value for key, value in pretrained_record(GRNN).items() if key not in later}
    records.write(tmp_path / runs.RECORD, record)
    error = str(invoke("evaluate", tmp_path).exception)
    assert error.endswith(f"Its weights are in the package: `fernn evaluate {GRNN}`.")


def test_evaluate_of_a_run_that_has_not_finished(run, invoke):
    (run / runs.RECORD).unlink()
    result = invoke("evaluate", run, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["recorded"] == {}
    text = invoke("evaluate", run).output
    assert "–" in text
    assert "its record" not in text


def test_evaluate_of_pretrained_weights_takes_the_recorded_sequences(invoke, monkeypatch):
    record = pretrained_record(GRNN)
    few = record["check"] | {"sequence_mse": record["check"]["sequence_mse"][:2]}
    monkeypatch.setattr("fernn.models.pretrained_record", lambda name: record | {"check": few})
    result = invoke("evaluate", GRNN, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    found = json.loads(result.output)
    assert found["measured"]["sequence_mse"] == pytest.approx(few["sequence_mse"], rel=1e-3)
    assert found["recorded"] == {name: few[name] for name in ("mean", "sequence_mse")}
    text = invoke("evaluate", GRNN, "--device", "cpu").output
    assert "first 2 test sequences" in text
    assert "differs from its record" in text  # the mean of all, not of two
    assert ", in mean" in text


def test_evaluate_of_pretrained_weights_takes_all_of_mnist_where_it_is(invoke, monkeypatch):
    asked = []

    def evaluate(model, recipe, **options):
        asked.append(options["root"])
        return {"test_mse": 0.5}

    monkeypatch.setattr("fernn.cli.evaluate.evaluate", evaluate)
    monkeypatch.setattr("fernn.cli.evaluate.datasets.source", lambda *needs: None)
    result = invoke("evaluate", GRNN, "--data", "mnist", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert [str(root) for root in asked] == ["mnist"]
    recorded = pretrained_record(GRNN)["metrics"]["test_mse"]
    assert f"0.5 {recorded:.4g}" in " ".join(result.output.split())


def test_evaluate_suggests_the_nearest_pretrained_name(invoke):
    error = str(invoke("evaluate", "translating-mnist/gnn").exception)
    assert "Did you mean translating-mnist/grnn?" in error


def test_table_in_every_form(tmp_path, invoke):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN, mse=3e-4))
    for form, expected in (((), "2.00"), (("--markdown",), "| 2.00 |"), (("--json",), '"ratio": ')):
        result = invoke("table", "1", "--runs", tmp_path, *form)
        assert result.exit_code == 0, result.output
        assert expected in result.output
    (row,) = [r for r in json.loads(result.output)["rows"] if r["n"]]
    assert row["ratio"] == pytest.approx(2.0)
    assert invoke("table", "table1", "--runs", tmp_path).exit_code == 0


def test_table_names_the_changes_of_a_run(run, invoke, tmp_path):
    result = invoke("table", "1", "--runs", tmp_path / "runs")
    assert "left out" not in result.output
    assert "data.test_size=2" in result.output


def test_table_prints_each_scale(tmp_path, invoke):
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    write_run(tmp_path, FERNN, scale="quick", metrics=forecast_metrics(FERNN, "quick"))
    for form, heading in (((), "Table 1, scale {}: "), (("--markdown",), "**Table 1, scale {}: ")):
        shown = invoke("table", "1", "--runs", tmp_path, *form).output
        assert shown.index(heading.format("short")) < shown.index(heading.format("quick"))
    assert "to get it" not in shown
    shown = invoke("table", "2", "--runs", tmp_path).output
    command = f"fernn reproduce table2/kth --scale short --clips FILE --out {tmp_path}"
    assert f"to get it: {command}" in shown


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("table", "2"), "table2/actions/grnn"),
        (("table", "larger"), "larger/actions"),
        (("figure", "8"), "fig8/actions/v0/grnn"),
    ],
)
def test_a_table_of_kth_names_that_of_the_stand_in(words, name, tmp_path, invoke):
    def shown(*more):
        result = invoke(*words, "--runs", tmp_path, *more)
        return f"{result.output}{result.exception}"

    (kind, number), hint = words, "runs on the stand-in"
    assert hint not in shown()
    write_run(tmp_path, name, metrics=clip_metrics("mocap_actions"))
    assert f"{hint}: fernn {kind} {number}-actions --runs {tmp_path}" in shown("--scale", "paper")
    first = name.partition("/")[0]
    for other in recipes():  # all of KTH is measured
        if other.startswith(first) and "actions" not in other:
            metrics = forecast_metrics(other) if "mnist" in other else clip_metrics("kth")
            write_run(tmp_path, other, metrics=metrics)
    out = ("--out", tmp_path / "f.png") if kind == "figure" else ()
    assert hint not in shown("--scale", "short", *out)


def test_table_says_which_runs_it_left_out(run, invoke, tmp_path):
    (run / runs.RECORD).write_text("{")
    result = invoke("table", "1", "--runs", tmp_path / "runs")
    assert "left out" in result.output
    assert str(run) in result.output


def test_figure_is_drawn_and_lists_what_is_missing(tmp_path, invoke):
    write_run(tmp_path / "runs", FERNN, metrics=forecast_metrics(FERNN))
    out = tmp_path / "new" / "three.svg"
    result = invoke("figure", "fig3", "--runs", tmp_path / "runs", "--out", out)
    assert result.exit_code == 0, result.output
    assert out.read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert "missing: table1/translation/{grnn, fernn-v1}" in result.output
    command = f"fernn reproduce table1 --scale short --data FOLDER --out {tmp_path / 'runs'}"
    assert f"to get it: {command}" in result.output


SETS = ("training.batch_size=32", "training.clip=0.1")


def drawn(invoke, number, folder, *settings):
    """What `fernn figure --set …` answered, and the picture it drew."""
    out = folder / "picture.svg"
    out.unlink(missing_ok=True)
    words = [word for setting in settings for word in ("--set", setting)]
    result = invoke("figure", number, "--runs", folder, "--out", out, *words)
    return result, out.read_text(encoding="utf-8") if out.exists() else ""


def test_figure_of_runs_trained_otherwise_names_what_was_set(tmp_path, invoke):
    plain = find(FERNN, "short")
    write_run(tmp_path, FERNN, metrics=forecast_metrics(FERNN))
    for made in (SETS, SETS[:1]):
        write_run(tmp_path, FERNN, recipe=changed(plain, made), metrics=forecast_metrics(FERNN))
    assert not any(setting in drawn(invoke, 3, tmp_path)[1] for setting in SETS)
    result, picture = drawn(invoke, 3, tmp_path, *reversed(SETS))  # in any order
    assert result.exit_code == 0, result.output
    assert all(setting in picture for setting in SETS)
    assert "1 seed," in picture  # of this run alone
    command = f"fernn train RECIPE --scale short --data FOLDER --out {tmp_path}"
    ends = " ".join(f"--set {setting}" for setting in reversed(SETS))
    assert f"to get it: {command} {ends} for each RECIPE" in result.output
    _, picture = drawn(invoke, 3, tmp_path, SETS[0])
    assert SETS[0] in picture
    assert SETS[1] not in picture
    with pytest.raises(FileNotFoundError, match=r"--scale short .*--set training\.clip=7"):
        raise drawn(invoke, 3, tmp_path, "training.clip=7")[0].exception


def test_figure_names_what_was_set_in_runs_that_it_does_not_draw(tmp_path, invoke):
    variant = f"{FERNN}-transported"
    recipe = changed(find(variant, "short"), SETS)
    write_run(tmp_path, variant, recipe=recipe, metrics=forecast_metrics(FERNN))
    for other in ("options.kernel_size=5", "training.epochs=3"):
        name = FERNN if other.startswith("options") else "table4/fernn-v2"
        recipe = changed(find(name, "short"), [other])
        write_run(tmp_path, name, recipe=recipe, metrics=forecast_metrics(name))
    hint = "trained otherwise: --set training.batch_size=32 --set training.clip=0.1"
    assert str(drawn(invoke, 3, tmp_path)[0].exception).endswith(hint)
    result, _ = drawn(invoke, 3, tmp_path, *SETS)
    assert result.exit_code == 0
    assert "trained otherwise" not in result.output


def test_figure_takes_a_plain_run_that_was_trained_so_anyway(tmp_path, invoke):
    rotating = "table1/rotation/fernn-v4"
    assert find(rotating, "short").training.batch_size == 32
    write_run(tmp_path, rotating, metrics=forecast_metrics(rotating))
    result, picture = drawn(invoke, 3, tmp_path, SETS[0])
    assert "1 seed," in picture, result.output
    assert "missing: table1/rotation/{grnn, fernn-v2}" in result.output


def test_figure_compares_with_the_recipe_and_not_with_the_chosen_rate(tmp_path, invoke):
    plain, epochs = find(FERNN, "short"), "training.epochs=3"
    runs.home(tmp_path, plain).mkdir(parents=True)
    records.write(runs.home(tmp_path, plain) / search.CHOICE, {"learning_rate": 5e-4})
    for rate in ((), ("training.learning_rate=0.0005",)):
        recipe = changed(plain, [epochs, *rate])
        write_run(tmp_path, FERNN, recipe=recipe, metrics=forecast_metrics(FERNN))
    known = str(drawn(invoke, 3, tmp_path)[0].exception)
    for settings in ((epochs,), (epochs, "training.learning_rate=0.0005")):
        assert f"trained otherwise: {' '.join(f'--set {s}' for s in settings)}\n" in f"{known}\n"
        result, picture = drawn(invoke, 3, tmp_path, *settings)
        assert "1 seed," in picture, result.output


@pytest.mark.parametrize("number", ["12", "14"])
def test_strips_name_what_was_set(number, tmp_path, invoke):
    recipe, epochs = find(FERNN, "quick"), "training.epochs=7"
    for made in (recipe, changed(recipe, [epochs])):
        write_run(tmp_path, FERNN, scale="quick", recipe=made, model=made.build(), metrics={})
    assert epochs not in drawn(invoke, number, tmp_path)[1]
    result, picture = drawn(invoke, number, tmp_path, epochs)
    assert epochs in picture, result.output


@pytest.mark.parametrize(
    ("number", "setting", "words"),
    [
        ("3", "training.batch=7", r"Did you mean 'training\.batch_size'"),
        ("3", "nonsense", "key=value"),
        ("3", "options.kernel_size=5", "must be of training"),
        *((number, SETS[0], "must be left out") for number in ("2", "7", "9", "10")),
    ],
)
def test_figure_refuses_settings_that_no_run_could_have(number, setting, words, tmp_path, invoke):
    result, picture = drawn(invoke, number, tmp_path, setting)
    assert not picture
    with pytest.raises(ValueError, match=words):
        raise result.exception


def test_report_is_written(tmp_path, invoke):
    write_run(tmp_path / "runs", FERNN, metrics=forecast_metrics(FERNN))
    out = tmp_path / "[new]" / "report.html"
    result = invoke("report", "--runs", tmp_path / "runs", "--out", out, "--no-forecasts")
    assert result.exit_code == 0, result.output
    assert f"1 run, written to {out}" in result.output.replace("\n", "")
    recipe = changed(find(FERNN, "short"), SETS)
    write_run(tmp_path / "runs", FERNN, recipe=recipe, metrics=forecast_metrics(FERNN))
    result = invoke("report", "--runs", tmp_path / "runs", "--out", out, "--no-forecasts")
    assert f"2 runs, written to {out}" in result.output.replace("\n", "")
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert str(tmp_path) not in page  # a page is passed on
    assert result.output.startswith("2 runs, ")  # nothing before it, for no line was due


def test_report_tells_which_figure_it_draws(tmp_path, invoke, monkeypatch):
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    result = invoke("report", "--runs", tmp_path, "--out", tmp_path / "x.html", "--no-forecasts")
    assert result.output.splitlines()[:2] == ["figure 14 (1 of 13)  0%", "figure 4 (2 of 13)  8%"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("table", "largr"), "Did you mean larger"),
        (("figure", "8-action"), "Did you mean 8-actions"),
        (("table", "1", "--scale", "papre"), "Did you mean paper"),
    ],
)
def test_mistyped_names_suggest_the_nearest(words, hint, tmp_path, invoke):
    result = invoke(*words, "--runs", tmp_path)
    assert result.exit_code != 0
    assert hint in str(result.exception)


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (("figure", "2"), "fernn.experiments.figures.draw"),
        (("report",), "fernn.experiments.report.write"),
        (("demo",), "fernn.cli.demo.print_all"),
        (("data", "show", "rotating-mnist"), "fernn.data.contact_sheet"),
        (("reproduce", "wrapper", "--scale", "quick"), "fernn.experiments.train.train"),
    ],
)
def test_an_out_that_cannot_be_written_is_named_before_the_work(
    words, work, tmp_path, invoke, monkeypatch
):
    monkeypatch.setattr(work, lambda *_, **__: pytest.fail("worked for nothing"))
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "new" / "x.png"
    error = invoke(*words, "--out", out).exception
    assert isinstance(error, OSError)
    why = f"no file can be made in {tmp_path / 'file'} (Not a directory). Name another."
    assert str(error) == f"`--out` must be a path that can be written to, got {out}: {why}"


def test_trying_an_out_leaves_nothing_there(tmp_path, invoke):
    result = invoke("figure", "3", "--runs", tmp_path, "--out", tmp_path / "new" / "x.png")
    assert "nothing to draw" in str(result.exception)
    assert not list(tmp_path.iterdir())
    assert "Invalid value for '--out'" in invoke("report", "--out", tmp_path).output


def test_a_number_is_not_taken_for_a_mistyped_number(tmp_path, invoke):
    assert "Did you mean" not in str(invoke("figure", "16", "--runs", tmp_path).exception)


@pytest.mark.parametrize("module", ["fernn", "fernn.cli"])
def test_mistyped_table_is_one_line(module, tmp_path):
    command = [sys.executable, "-m", module, "table", "6", "--runs", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "`table` must be one of" in result.stdout + result.stderr
    assert "Traceback" not in result.stdout + result.stderr
