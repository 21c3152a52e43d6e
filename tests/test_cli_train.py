"""`fernn list`, `train`, `reproduce` and `show`: thin, kind, and honest in their exit codes."""

import io
import json
import os
import re
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fernn import cli
from fernn.cli import train as commands
from fernn.experiments import progress, runs
from fernn.experiments.recipes import find, recipes

NAME = "table1/translation/fernn-v2-transported"
TINY = [
    "options.hidden_channels=4",
    "options.decoder_layers=0",
    "data.observed=2",
    "data.horizon=2",
    "data.train_size=8",
    "data.val_size=4",
    "data.test_size=4",
    "training.batch_size=4",
    "training.epochs=2",
]


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(cli.app, list(words))


@pytest.fixture
def train(invoke, tmp_path):
    words = [word for setting in TINY for word in ("--set", setting)]
    always = ("train", NAME, "--scale", "quick", "--device", "cpu", "--out", str(tmp_path))
    return lambda *more: invoke(*always, *words, *more)


def test_list_shows_every_recipe(invoke):
    names = [recipe["name"] for recipe in json.loads(invoke("list", "--json").output)]
    assert names == [*recipes()]
    result = invoke("list", "table4")
    assert result.exit_code == 0
    assert "table4/fernn-v2-mixing" in result.output
    assert "0.0089" in result.output
    assert "table1" not in result.output


def test_list_refuses_what_no_recipe_begins_with(invoke):
    result = invoke("list", "table9")
    assert isinstance(result.exception, ValueError)
    assert "'table9'" in str(result.exception)


def test_train_then_show(train, invoke, tmp_path):
    result = train("--seed", "1")
    assert result.exit_code == 0, result.output
    assert "epoch 2/2" in result.output
    assert "test mse" in result.output
    run = runs.folder(tmp_path, find(NAME, "quick"), 1)
    assert json.loads((run / "record.json").read_text())["recipe"]["training"]["epochs"] == 2
    shown = invoke("show", str(run))
    assert shown.exit_code == 0, shown.output
    assert "2 of 2 epochs" in shown.output
    assert "test mse" in shown.output
    assert "hidden_channels=4" in shown.output


def test_train_of_a_finished_run_says_so(train):
    train()
    again = train()
    assert again.exit_code == 0
    assert "is finished" in again.output


def test_show_of_a_run_that_is_not_finished(invoke, tmp_path):
    run = runs.folder(tmp_path, find(NAME, "quick"), 0)
    runs.begin(run, find(NAME, "quick"))
    assert "not finished" in invoke("show", str(run)).output
    missing = invoke("show", str(tmp_path))
    assert isinstance(missing.exception, FileNotFoundError)


def test_ctrl_c_exits_with_130_and_the_same_command_goes_on(train, monkeypatch):
    class Impatient(progress.Lines):
        def step(self, done, loss, rate):
            if done == 1:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(progress, "report_for", Impatient)
    result = train()
    assert result.exit_code == 130, result.output
    assert "the same command goes on" in result.output
    monkeypatch.undo()
    result = train()
    assert result.exit_code == 0, result.output
    assert "resuming" in result.output


def test_out_of_memory_is_one_line(train, monkeypatch):
    def full(*_, **__):
        raise MemoryError("too small")

    from fernn.experiments import train as library

    monkeypatch.setattr(library, "train", full)
    assert isinstance(train().exception, ValueError)


def _errors(*words):
    command = [sys.executable, "-m", "fernn.cli", *words]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "Traceback" not in result.stdout + result.stderr
    return " ".join((result.stdout + result.stderr).split())


def test_a_mistyped_recipe_is_one_line_with_a_suggestion():
    assert f"Did you mean '{NAME}'" in _errors("train", NAME.replace("fernn", "fern"))


def test_a_mistyped_setting_suggests_the_nearest(invoke):
    result = invoke("train", NAME, "--set", "training.epoch=3")
    assert isinstance(result.exception, ValueError)
    assert "'training.epochs'" in str(result.exception)


def test_help_fits_a_screen(invoke):
    result = invoke("--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 40
    for command in ("list", "train", "show"):
        assert re.search(rf"\b{command}\b", result.output)


def test_bars_on_a_terminal_and_lines_elsewhere():
    from rich.console import Console

    terminal = Console(force_terminal=True, file=io.StringIO())
    with terminal.file:
        assert isinstance(progress.report_for(terminal), progress.Bars)
        with progress.report_for(terminal) as report:
            report.begin("a run", 0, 10)
            report.step(1, 0.5, 20.0)
            line = {"epoch": 1, "step": 1, "train_loss": 1.0, "val_loss": 1.0, "seconds": 3661.0}
            report.validated(line, 2, best=True)
    assert type(progress.report_for(Console(force_terminal=False))) is progress.Lines


def test_lines_tell_of_time_left(capsys, monkeypatch):
    from rich.console import Console

    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    report = progress.Lines(Console(force_terminal=False, width=40))
    report.begin("a run", 0, 10)
    report.step(5, 0.25, 20.0)
    out = capsys.readouterr().out
    assert re.search(r"step 5/10  loss 2.500e-01  20.0 seq/s  ETA 0:00:00\n", out)


def test_commands_are_exported():
    assert commands.train_command in [c.callback for c in cli.app.registered_commands]


@pytest.fixture
def trained(monkeypatch):
    """Which runs `reproduce` asks for; none is really trained."""
    asked = []

    def train(recipe, seed, **options):
        asked.append((recipe.name, recipe.scale, seed))
        if "grnn" in recipe.name:
            raise ValueError("`root` must be given")
        return {"val_loss": 1.0}

    monkeypatch.setattr("fernn.experiments.train.train", train)
    return asked


def test_reproduce_trains_every_row_and_names_those_it_could_not(trained, invoke, tmp_path):
    result = invoke("reproduce", "table1/translation", "--scale", "short", "--out", str(tmp_path))
    names = [name for name in recipes() if name.startswith("table1/translation")]
    assert trained == [(name, "short", seed) for name in names for seed in range(5)]
    assert result.exit_code == 1
    assert "20 of 30 runs are done" in result.output
    assert "not done: table1/translation/grnn, seed 0: `root` must be given" in result.output


def test_reproduce_takes_fewer_seeds_and_says_when_all_is_done(trained, invoke, tmp_path):
    words = ("reproduce", "table1/translation/fernn", "--seeds", "1", "--out", str(tmp_path))
    result = invoke(*words, "--scale", "quick")
    assert result.exit_code == 0, result.output
    assert {seed for _, _, seed in trained} == {0}
    assert f"{len(trained)} of {len(trained)} runs are done" in result.output


def test_reproduce_refuses_what_no_recipe_begins_with(trained, invoke):
    result = invoke("reproduce", "table9")
    assert isinstance(result.exception, ValueError)
    assert not trained


def test_reproduce_leaves_a_run_of_other_settings_alone(train, invoke, tmp_path):
    assert train().exit_code == 0
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")}
    folder = runs.folder(tmp_path, find(NAME, "quick"), 0)
    assert folder / "record.json" in before
    result = invoke("reproduce", NAME, "--scale", "quick", "--seeds", "1", "--out", str(tmp_path))
    # The run there was trained with other settings, which is refused, not overwritten.
    assert result.exit_code == 1
    assert "not done" in result.output
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("record.json")} == before
