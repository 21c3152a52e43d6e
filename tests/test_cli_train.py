"""`fernn list` and `train`: thin, kind, and honest in their exit codes."""

import io
import json
import re
import signal
import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from typer.testing import CliRunner

from fernn import cli
from fernn.cli import train as commands
from fernn.experiments import progress, runs
from fernn.experiments.recipes import changed, find, recipes

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


def _folder(out, seed=0):
    return runs.folder(out, changed(find(NAME, "quick"), TINY), seed)


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
    assert "paper" in result.output.splitlines()[0]
    assert "table1" not in result.output
    assert "transported: " not in result.output
    assert "transported: reads out flow equivariantly" in invoke("list", "table1").output


def test_list_refuses_what_no_recipe_begins_with(invoke):
    result = invoke("list", "table9")
    assert isinstance(result.exception, ValueError)
    assert "'table9'" in str(result.exception)


def test_train_then_show(train, invoke, tmp_path):
    result = train("--seed", "1")
    assert result.exit_code == 0, result.output
    assert "epoch 2/2" in result.output
    assert "test mse" in result.output
    run = _folder(tmp_path, 1)
    assert json.loads((run / "record.json").read_text())["recipe"]["training"]["epochs"] == 2
    shown = invoke("show", str(run))
    assert shown.exit_code == 0, shown.output
    assert "2 of 2 epochs" in shown.output
    assert "test mse" in shown.output
    assert "hidden_channels=4" in shown.output
    assert "a training sequence" in shown.output


def test_train_of_a_finished_run_says_so(train):
    train()
    again = train()
    assert again.exit_code == 0
    assert "is finished" in again.output


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ((NAME, "--data", "nowhere"), "--data"),
        (("table2/actions/grnn", "--clips", "no.npz"), "--clips"),
    ],
)
def test_data_that_is_not_there_is_named_as_it_was_typed(words, option, invoke, tmp_path):
    always = ("train", "--scale", "quick", "--device", "cpu", "--out", str(tmp_path))
    error = invoke(*always, *words).exception
    assert isinstance(error, ValueError)
    assert str(error).startswith(f"`{option}` must be")
    assert words[-1] in str(error)
    assert "root" not in str(error)
    assert not [*tmp_path.iterdir()]  # no folder of a run that never began
    shown = invoke("data", "show", "rotating-mnist", "--data", "nowhere").exception
    assert str(shown).startswith("`--data` must be")


@pytest.mark.parametrize("name", [runs.RECORD, runs.RECIPE])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_file_is_named_with_the_remedy(name, text, train, tmp_path):
    assert train().exit_code == 0
    path = _folder(tmp_path) / name
    path.write_text(text)
    error = train().exception
    assert isinstance(error, ValueError)
    assert f"{path} must be" in str(error)
    assert "If fernn wrote it, remove it" in str(error)
    path.unlink()  # as it says
    assert train().exit_code == 0
    assert path.stat().st_size > 100


def test_ctrl_c_exits_with_130_and_the_same_command_goes_on(train, invoke, tmp_path, monkeypatch):
    class Impatient(progress.Lines):
        def step(self, done, loss, rate):
            if done == 1:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress, "report_for", Impatient)
    result = train()
    assert result.exit_code == 130, result.output
    assert "the same command goes on" in result.output
    monkeypatch.undo()
    files = {path: path.read_bytes() for path in _folder(tmp_path).rglob("*") if path.is_file()}
    shown = invoke("show", str(_folder(tmp_path)))
    assert "not finished: saved at step 1;" in shown.output
    assert "data.observed=2" in shown.output.partition("changed: ")[2]
    assert files == {path: path.read_bytes() for path in files}  # looking changes nothing
    result = train()
    assert result.exit_code == 0, result.output
    assert "resuming" in result.output


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_out_of_memory_is_one_line(error, train, monkeypatch):
    """Also where no smaller micro-batch helps, such as in a step of the optimiser."""

    def full(*_, **__):
        raise error("too small")

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
    assert f"Did you mean {NAME}?" in _errors("train", NAME.replace("fernn", "fern"))


def test_the_first_parts_of_a_name_are_several_recipes(invoke):
    error = invoke("train", "table1/translation").exception
    assert "`fernn reproduce table1/translation` trains them all" in str(error)


def test_a_mistyped_setting_suggests_the_nearest(invoke):
    result = invoke("train", NAME, "--set", "training.epoch=3")
    assert isinstance(result.exception, ValueError)
    assert "Did you mean training.epochs?" in str(result.exception)


def test_help_fits_a_screen(invoke):
    result = invoke("--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 40
    for command in ("list", "train", "show"):
        assert re.search(rf"\b{command}\b", result.output)


def test_help_flows_as_wide_as_the_screen(invoke):
    """A line of help ends where the next word would not fit, not where the docstring's did."""
    lines = invoke("train", "--help").output.splitlines()
    start = next(n for n, line in enumerate(lines) if "Ctrl-C saves" in line)
    text = [line.strip() for line in lines[start : lines.index(" " * len(lines[start]), start)]]
    assert len(text) > 1
    for line, after in pairwise(text):
        assert len(line) + 1 + len(after.split()[0]) > len(lines[start]) - 2


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


@pytest.mark.parametrize("width", [60, 80])
def test_bars_show_the_time_left_on_a_narrow_terminal(width):
    from rich.console import Console

    with io.StringIO() as file:
        console = Console(force_terminal=True, file=file, width=width, color_system=None)
        with progress.report_for(console) as report:
            report.begin("table1/translation/fernn-v2-transported short", 6249, 12500)
            report.step(6250, 7.469e-2, 1137.9)
        last = file.getvalue().split("\x1b[2K")[-1].splitlines()[0]
    assert re.search(r"[━╸] +6250/12500 loss 7.469e-02  1137.9 seq/s  ETA \d+:\d\d:\d\d$", last)
    assert len(last) == width


def test_lines_tell_of_time_left(capsys, monkeypatch):
    from rich.console import Console

    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    report = progress.Lines(Console(force_terminal=False, width=40))
    report.begin("a run", 0, 10)
    report.step(5, 0.25, 20.0)
    out = capsys.readouterr().out
    assert re.search(r"step 5/10  loss 2.500e-01  20.0 seq/s  ETA 0:00:00\n", out)
    report.evaluated(0, 40, "test split, 0 of 20 sequences")
    report.evaluated(10, 40, "test split, 5 of 20 sequences")
    out = capsys.readouterr().out
    assert re.search(r"test split, 5 of 20 sequences  25%  ETA 0:00:00\n", out)


@pytest.mark.parametrize("width", [80, 100])
def test_bars_show_how_far_the_evaluation_is_until_it_ends(width):
    from rich.console import Console

    with io.StringIO() as file:
        console = Console(force_terminal=True, file=file, width=width, color_system=None)
        with progress.report_for(console) as report:
            report.begin("a run", 0, 10)
            report.step(10, 0.25, 20.0)
            report.evaluated(0, 5300, "test split, 0 of 500 sequences")
            report.evaluated(1280, 5300, "velocity 12 of 25, [b]128 of 500 sequences")
            report._bar.refresh()
            shown = file.getvalue().splitlines()[-1]
        last = file.getvalue().splitlines()[-2:]
    assert re.search(
        r"[━╸] +velocity 12 of 25, \[b\]128 of 500 sequences  ETA \d:\d\d:\d\d$", shown
    )
    assert not any("sequences" in line for line in last)


@pytest.mark.parametrize("width", [60, 80])
def test_counting_shows_what_is_done_on_a_narrow_terminal(width):
    from rich.console import Console

    with io.StringIO() as file:
        console = Console(force_terminal=True, file=file, width=width, color_system=None)
        with progress.counting(console) as tell:
            tell(1280, 5300, "velocity 12 of 25, [b]128 of 500 sequences")
        last = file.getvalue().split("\x1b[2K")[-2].splitlines()[0]
    assert re.search(r"^velocity 12 of 25, \[b\]128 of 500 sequences .*  24% -:--:--$", last)
    assert len(last) == width


def test_counting_in_lines(capsys, monkeypatch):
    from rich.console import Console

    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    console = Console(force_terminal=False, width=30)
    with progress.counting(console) as tell:
        for then, done in ((0.0, 2), (29.0, 4), (50.0, 7), (79.0, 8), (80.0, 8)):
            now = then
            tell(done, 10, "a file with a long name [b]")
        tell(0, 0, "nobody knows how much")
        now = 200.0
        tell(1 << 20, 0, "nobody knows how much")
    with progress.counting(console, even=False) as tell:
        tell(0, 4, "figure")
        now = 300.0
        tell(1, 4, "figure")
    assert capsys.readouterr().out.splitlines() == [
        "a file with a long name [b]  20%  ETA –",
        "a file with a long name [b]  70%  ETA 0:00:30",
        "a file with a long name [b]  80%  ETA 0:00:27",
        "nobody knows how much  1,048,576",
        "figure  0%",
        "figure  25%",
    ]


def test_commands_are_exported():
    assert commands.train_command in [c.callback for c in cli.app.registered_commands]


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("table2/actions/grnn", ["table2/actions/grnn"]),
        ("larger/", ["larger/mnist", "larger/kth", "larger/actions"]),
    ],
)
def test_a_name_is_one_recipe_and_its_first_parts_are_all_below(invoke, what, names):
    listed = json.loads(invoke("list", what, "--json").output)
    assert [recipe["name"] for recipe in listed] == names


def test_a_changed_recipe_lies_beside_the_plain_one(train, invoke, tmp_path):
    assert train().exit_code == 0
    assert train("--set", "training.epochs=1").exit_code == 0
    folders = {path.parent.parent.name for path in tmp_path.rglob("record.json")}
    assert len(folders) == 2
    assert not runs.folder(tmp_path, find(NAME, "quick"), 0).exists()
    shown = invoke("table", "1", "--runs", str(tmp_path), "--json")
    rows = [row for row in json.loads(shown.output)["rows"] if row["n"]]
    (two, one) = sorted((row["changes"] for row in rows), key=len)
    assert [*set(one) - set(two)] == ["training.epochs=1"]  # two are what the recipe has
    run = str(_folder(tmp_path))
    assert invoke("evaluate", run, "--device", "cpu").exit_code == 0


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ([], "quick"),
        (["training.epochs=3"], "training.epochs=3"),
        (["training.epochs=3", "data.horizon=6"], "data.horizon=6,training.epochs=3"),
    ],
)
def test_the_folder_of_a_changed_recipe_says_what_was_changed(settings, name, tmp_path):
    recipe = changed(find(NAME, "quick"), settings)
    assert runs.folder(tmp_path, recipe, 0).parent.name == name
    again = changed(recipe, [*reversed(settings)])
    assert runs.folder(tmp_path, again, 0) == runs.folder(tmp_path, recipe, 0)


def test_folders_of_changed_recipes_are_short_plain_and_never_shared(tmp_path):
    flows = [
        f"options.flow=Translation(velocities=[(0, {speeds}), (1, 1)])"
        for speeds in (1, -1, "0), (0, 1")
    ] + [f"options.flow=Translation(radius={radius})" for radius in (1, 2)]
    recipe = find(NAME, "quick")
    names = [runs.folder(tmp_path, changed(recipe, [*TINY, flow]), 0).parent.name for flow in flows]
    assert len(set(names)) == len(flows)
    assert all(re.fullmatch(r"[\w.,=+-]{1,80}", name) for name in names)
