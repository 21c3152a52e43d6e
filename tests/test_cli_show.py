"""`fernn show`: a run, pretrained weights, or which runs there are."""

import json
import shlex
from pathlib import Path

import pytest
from synthetic import forecast_metrics, write_run
from typer.testing import CliRunner

from fernn import cli
from fernn.experiments import checkpoint, runs
from fernn.experiments.recipes import changed, changes, find, from_json
from fernn.models import pretrained, pretrained_record

NAME = "table1/translation/fernn-v2-transported"
RESULTS = Path(__file__).parents[1] / "results"
INSIDE = ("embedded digits", "glimpses")


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(cli.app, [str(word) for word in words])


def test_show_of_a_damaged_recipe_names_the_file(invoke, tmp_path):
    (tmp_path / runs.RECIPE).write_text('{"name": "table9"}')
    error = invoke("show", str(tmp_path)).exception
    assert isinstance(error, ValueError)
    assert f"{tmp_path / runs.RECIPE} must hold a recipe" in str(error)
    assert str(error).endswith("Use the version that wrote it, or another folder.")
    (tmp_path / runs.RECIPE).unlink()
    (tmp_path / runs.RECORD).write_text("{}")  # somebody else's
    assert "it has no 'recipe'. Use" in str(invoke("show", str(tmp_path)).exception)


def test_show_of_a_run_that_is_not_finished(invoke, tmp_path):
    run = runs.folder(tmp_path, find(NAME, "quick"), 0)
    runs.begin(run, find(NAME, "quick"))
    assert "not finished, and nothing is saved yet" in invoke("show", str(run)).output


def test_show_says_the_step_although_the_newest_checkpoint_is_broken(invoke, tmp_path):
    run = runs.folder(tmp_path, find(NAME, "quick"), 0)
    runs.begin(run, find(NAME, "quick"))
    for step in (3, 4):
        checkpoint.write(run / runs.CHECKPOINTS, {}, {"step": step})
    broken = run / runs.CHECKPOINTS / "00000002.json"
    broken.write_text("{")
    assert "saved at step 3" in invoke("show", str(run)).output
    assert broken.exists()


@pytest.fixture
def finished(tmp_path):
    return write_run(tmp_path, NAME, scale="quick", metrics=forecast_metrics(NAME, "quick"))


def test_show_of_a_record_alone(finished, invoke):
    shown = invoke("show", finished)
    assert shown.exit_code == 0, shown.output
    (finished / runs.RECIPE).unlink()
    assert invoke("show", finished).output == shown.output
    result = invoke("show", next(RESULTS.rglob(runs.RECORD)).parent)
    assert result.exit_code == 0, result.output
    assert "val loss" in result.output


@pytest.mark.parametrize("name", pretrained())
def test_show_of_pretrained_weights_is_of_their_record(name, invoke):
    record, result = pretrained_record(name), invoke("show", name)
    assert result.exit_code == 0, result.output
    assert f"{record['name']}, short: " in result.output
    assert f"test mse            {record['metrics']['test_mse']:.4g}" in result.output
    assert result.output.endswith(f'in the package: fernn.load_pretrained("{name}")\n')


def test_show_of_a_folder_above_runs_names_them(finished, invoke, tmp_path):
    begun = runs.folder(tmp_path, find(NAME, "short"), 3)
    runs.begin(begun, find(NAME, "short"))
    result = invoke("show", tmp_path)
    assert result.exit_code == 0, result.output
    about, *lines = result.output.splitlines()
    assert about == f"2 runs below {tmp_path}; `fernn show` takes one:"
    assert lines == [str(finished), f"{begun}  not finished"]


def test_show_of_nothing_says_what_it_takes(invoke, tmp_path):
    for what in (tmp_path, tmp_path / "nowhere"):
        error = invoke("show", what).exception
        assert isinstance(error, FileNotFoundError)
        assert "`run` must be a folder that `fernn train` made, one above" in str(error)
    assert str(invoke("show", "grnn").exception).endswith("Did you mean translating-mnist/grnn?")


def _command(output):
    (line,) = [line for line in output.splitlines() if line.startswith("command: ")]
    return shlex.split(line.removeprefix("command: "))


@pytest.fixture
def asked(monkeypatch):
    """What `fernn train` would train, and how."""
    runs_asked = []

    def run(recipe, seed, out, **options):
        runs_asked.append((recipe, seed, out, options))

    monkeypatch.setattr("fernn.cli.train.run", run)
    return runs_asked


def test_show_prints_the_command_that_trains_the_run(invoke, asked, tmp_path):
    settings = ["options.flow=Translation(velocities=[(0, 0), (0, 1)])", "training.epochs=3"]
    recipe = changed(find(NAME, "short"), settings)
    about = {"seed": 2, "recipe": recipe, "metrics": forecast_metrics(NAME), "data": "MNIST"}
    words = _command(invoke("show", write_run(tmp_path, NAME, **about)).output)
    assert words[:2] == ["fernn", "train"]
    assert words[-2:] == ["--data", "FOLDER"]
    assert invoke(*words[1:]).exit_code == 0
    ((trained, seed, _, options),) = asked
    assert (trained, seed, options["precision"]) == (recipe, 2, "bf16-mixed")


def test_show_prints_the_command_that_goes_on(invoke, asked, tmp_path, monkeypatch):
    recipe = find(NAME, "quick")
    run = runs.folder(tmp_path / "a folder", recipe, 0)
    runs.begin(run, recipe)
    state = {"step": 3, "precision": "tf32", "source": "embedded digits"}
    checkpoint.write(run / runs.CHECKPOINTS, {}, state)
    words = _command(invoke("show", run).output)
    assert "--seed" not in words
    assert "--data" not in words
    assert invoke(*words[1:]).exit_code == 0
    ((trained, seed, out, options),) = asked
    assert (trained, seed, out) == (recipe, 0, tmp_path / "a folder")
    assert options["precision"] == "tf32"
    monkeypatch.chdir(run)
    assert _command(invoke("show", ".").output) == words
    run.rename(tmp_path / "moved")
    assert "command: " not in invoke("show", tmp_path / "moved").output


def test_every_record_names_a_command_that_makes_its_recipe():
    paths = [*RESULTS.rglob(runs.RECORD)]
    assert paths
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        recipe = from_json(record["recipe"])
        line = runs.command(recipe, record["seed"], source=record["data"])
        words = shlex.split(line)
        settings = [words[place + 1] for place, word in enumerate(words) if word == "--set"]
        assert not changes(changed(find(words[2], record["scale"]), settings), recipe), line
        assert ("FOLDER" in words or "FILE" in words) == (record["data"] not in INSIDE)


def test_the_command_has_the_parts_of_a_batch_and_asks_for_clips_of_kth(invoke, tmp_path):
    about = {"metrics": forecast_metrics(NAME), "data": "MNIST", "processes": 2}
    for micro, seed in ((64, 0), (32, 1)):
        run = write_run(tmp_path, NAME, seed=seed, **about, micro_batch=micro)
        words = _command(invoke("show", run).output)
        assert ("--micro-batch" in words) == (micro == 32)  # of 128
    kth = runs.command(find("table2/kth/grnn", "quick"), 0)
    assert kth == "fernn train table2/kth/grnn --scale quick --clips FILE"


def test_a_recipe_that_no_command_makes_has_none():
    recipe = find(NAME, "quick")
    assert runs.command(recipe.but(name="table9/mine"), 0) is None
    assert runs.command(recipe.but(model="SequenceForecaster", options={}), 0) is None
