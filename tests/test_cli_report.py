"""`fernn evaluate`, `fernn table`, `fernn figure` and `fernn report`."""

import json
import subprocess
import sys
from dataclasses import replace
from statistics import fmean

import pytest
from synthetic import clip_metrics, forecast_metrics, recipe_of, write_run
from typer.testing import CliRunner

from fernn import Translation, cli
from fernn.experiments import datasets, glimpses, progress, records, runs
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
    assert json.loads(result.stdout) == {"measured": recorded, "recorded": recorded}
    assert (run / runs.RECORD).read_bytes() == before
    text = invoke("evaluate", run).output
    assert "test mse" in text
    assert "at step 70" in text
    assert "over 2 velocities" in text
    assert recipe_of(run).data.horizon == 2


def test_evaluate_shows_how_far_it_is(run, invoke, monkeypatch):
    first = "test split, 0 of 2 sequences  0%  ETA –"
    assert invoke("evaluate", run).stderr.splitlines() == [first]  # at once, the next not soon
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    lines = invoke("evaluate", run, "--json").stderr.splitlines()
    assert lines[0] == first
    assert lines[-1].startswith("velocity 2 of 2, 0 of 2 sequences  95%  ETA 0:00:0")
    monkeypatch.setenv("FORCE_COLOR", "1")  # for rich, a terminal
    result = invoke("evaluate", run, "--json")
    assert "velocity 2 of 2, 0 of 2 sequences" in result.stderr
    assert json.loads(result.stdout)["measured"]


def test_evaluate_says_whether_it_agrees_with_the_record(run, invoke):
    def last(status):
        result = invoke("evaluate", run)
        assert result.exit_code == status
        return next(line for line in result.output.splitlines() if " its record: " in line)

    assert last(0) == "agrees with its record: all that is compared is the same"
    record = runs.read_json(run / runs.RECORD)
    record["metrics"]["test_mse"] *= 0.5
    records.write(run / runs.RECORD, record)
    differs = "differs from its record: test mse differs most, by 50% (2% is allowed)"
    assert last(1) == differs


def test_evaluate_refuses_other_clips_of_the_same_name(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr(glimpses, "SIZES", {"train": 12, "val": 6, "test": 6})
    archive = glimpses.glimpses.__wrapped__()
    recipe = find("table2/actions/cnn3d", "quick")
    model = recipe.build()
    metrics = evaluate(model, recipe, archive=archive)
    run = write_run(
        tmp_path, recipe.name, recipe=recipe, metrics=metrics, model=model,
        data_sha256=archive.sha256,
    )  # fmt: skip
    monkeypatch.setattr(datasets, "glimpses", lambda: archive)
    assert "agrees with its record" in invoke("evaluate", run).output
    other = replace(archive, frames=255 - archive.frames)
    monkeypatch.setattr(datasets, "glimpses", lambda: other)
    error = str(invoke("evaluate", run).exception)
    assert f"`--clips` must be the archive that {run} learned from" in error


def test_evaluate_names_what_a_run_lacks(run, invoke, tmp_path):
    (run / runs.BEST).unlink()
    alone = str(invoke("evaluate", run).exception)
    assert "a record alone" in alone
    assert "in the package" not in alone
    (run / runs.RECIPE).unlink()  # as records are kept in a repository
    assert "without best.safetensors" in str(invoke("evaluate", run).exception)
    assert "`run` must be" in str(invoke("evaluate", tmp_path / "nowhere").exception)
    above = str(invoke("evaluate", run.parent).exception)
    assert above.endswith(f" A run in it is {run}; `fernn show {run.parent}` names all of them.")
    (tmp_path / "model").touch()
    alone = str(invoke("evaluate", tmp_path / "model").exception)
    assert "A file alone has no recipe to evaluate it by; `fernn verify` takes one" in alone


def test_evaluate_names_the_weights_of_a_record_in_the_package(invoke, tmp_path):
    later = ("weights", "check")  # what publishing added to the record of the run
    record = {key: value for key, value in pretrained_record(GRNN).items() if key not in later}
    records.write(tmp_path / runs.RECORD, record)
    error = str(invoke("evaluate", tmp_path).exception)
    assert error.endswith(f"Its weights are in the package, by the name {GRNN}.")


def test_evaluate_of_a_run_that_has_not_finished(run, invoke):
    (run / runs.RECORD).unlink()
    result = invoke("evaluate", run, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["recorded"] == {}
    text = invoke("evaluate", run).output
    assert "–" in text
    assert "its record" not in text


def test_evaluate_of_pretrained_weights_takes_the_recorded_sequences(invoke, monkeypatch):
    record = pretrained_record(GRNN)
    few = record["check"] | {"sequence_mse": record["check"]["sequence_mse"][:2]}
    monkeypatch.setattr("fernn.models.pretrained_record", lambda name: record | {"check": few})
    result = invoke("evaluate", GRNN, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["measured"]["sequence_mse"] == pytest.approx(few["sequence_mse"], rel=1e-3)
    assert found["recorded"] == {name: few[name] for name in ("mean", "sequence_mse")}
    text = invoke("evaluate", GRNN, "--device", "cpu").output
    rows = [" ".join(line.split()) for line in text.splitlines()]
    mean = fmean(found["measured"]["sequence_mse"])
    assert f"MSE, first 2 test sequences {mean:.4g} {few['mean']:.4g}" in rows
    ends = "{:.3g} to {:.3g}".format(*sorted(few["sequence_mse"]))
    assert f"lowest to highest of them {ends} {ends}" in rows
    whole = record["metrics"]["test_mse"]
    assert f"MSE, all 10,000 test sequences needs --data {whole:.4g}" in rows
    assert "--data FOLDER, with MNIST's files, measures all of the test split again" in text
    # The recorded mean is of all, not of two.
    assert "differs from its record: the mean of these sequences differs most" in text


def test_evaluate_of_pretrained_weights_takes_all_of_mnist_where_it_is(invoke, monkeypatch):
    asked = []

    def evaluate(model, recipe, **options):
        asked.append(options["root"])
        return {"test_mse": 0.5}

    monkeypatch.setattr("fernn.cli.evaluate.evaluate", evaluate)
    monkeypatch.setattr("fernn.cli.evaluate.datasets.source", lambda *needs: None)
    result = invoke("evaluate", GRNN, "--data", "mnist", "--device", "cpu")
    assert result.exit_code == 1, result.output  # 0.5 is not what is recorded
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
    shown = invoke("table", "1", "--runs", tmp_path).output
    way = "to get what is missing: fernn reproduce table1/translation/grnn "
    told = [line for line in shown.splitlines() if way in line]
    assert ["--scale short " in told[0], "--scale quick " in told[1]] == [True, True]
    shown = invoke("table", "2", "--runs", tmp_path).output
    command = "fernn reproduce table2/kth --scale short --clips FILE --precision bf16-mixed"
    assert f"to get it: {command} --out {tmp_path}" in shown


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
    rows = ("translation/grnn", "translation/fernn-v1")
    command = f"fernn reproduce {' '.join(f'table1/{row}' for row in rows)} table1/rotation/grnn"
    assert f"to get it: {command}" in result.output
    assert f"--data FOLDER --precision bf16-mixed --out {tmp_path / 'runs'}" in result.output


def test_report_is_written(tmp_path, invoke):
    write_run(tmp_path / "runs", FERNN, metrics=forecast_metrics(FERNN))
    out = tmp_path / "[new]" / "report.html"
    result = invoke("report", "--runs", tmp_path / "runs", "--out", out, "--no-forecasts")
    assert result.exit_code == 0, result.output
    assert f"1 run, written to {out}" in result.output.replace("\n", "")
    recipe = changed(find(FERNN, "short"), ["training.epochs=3"])
    write_run(tmp_path / "runs", FERNN, recipe=recipe, metrics=forecast_metrics(FERNN))
    result = invoke("report", "--runs", tmp_path / "runs", "--out", out, "--no-forecasts")
    assert f"2 runs, written to {out}" in result.output.replace("\n", "")
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert str(tmp_path) not in page  # a page is passed on
    first, last = result.output.splitlines()  # of so short a work, no other line was due
    assert (first, last[:7]) == ("figure 14 (1 of 13)  0%", "2 runs,")


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


def test_a_report_is_a_page_by_its_name(invoke, tmp_path, monkeypatch):
    monkeypatch.setattr("fernn.experiments.report.write", lambda *_, **__: pytest.fail("written"))
    error = invoke("report", "--out", tmp_path / "page").exception
    assert str(error) == f"`--out` must end with .html, got '{tmp_path / 'page'}'."


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
    out = tmp_path / "file" / "new" / "x"
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
