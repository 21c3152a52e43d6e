"""The command line: thin, kind, and honest in its exit code."""

import json
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from synthetic import write_run
from typer.testing import CliRunner

from fernn import Classifier, Forecaster, Rotation, Translation, __version__, cli, save
from fernn.cli.demo import ROWS
from fernn.data import DataError
from fernn.experiments import pretrained, progress, showcase, verification
from fernn.experiments.recipes import find, to_json
from fernn.experiments.runs import BEST, RECIPE
from fernn.models import CNN3D


@pytest.fixture
def invoke():
    return lambda *words: CliRunner().invoke(cli.app, list(words))


@pytest.mark.parametrize("missing", ["typer", "lightning"])
def test_command_without_its_extra_names_it(missing):
    code = f"import sys; sys.modules[{missing!r}] = None; import fernn.__main__"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    expected = "The fernn command needs its extra: pip install 'fernn[experiments]'.\n"
    assert result.stderr == expected


def test_verify_of_a_saved_model(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Forecaster(flow=Translation(radius=1), hidden_channels=4), path)
    result = invoke("verify", str(path), "--plot", str(tmp_path / "errors.png"))
    assert result.exit_code == 0, result.output
    assert "Translation(radius=1), float64: exact" in result.output  # the states
    assert "Translation(closed=(5, 5)), float64: exact" in result.output  # the forecast
    assert (tmp_path / "errors.png").exists()


def test_verify_says_at_once_that_a_plot_cannot_be_written(tmp_path, invoke, monkeypatch):
    monkeypatch.setattr(
        "fernn.experiments.pretrained.verify", lambda *_, **__: pytest.fail("too late")
    )
    (tmp_path / "file").touch()
    plot = tmp_path / "file" / "errors.png"
    error = invoke("verify", "translating-mnist/grnn", "--plot", str(plot)).exception
    assert f"`--plot` must be a path that can be written to, got {plot}" in str(error)


def test_verify_of_a_readout_that_does_not_move_along_fails(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    torch.manual_seed(0)
    flow = Translation(radius=1)
    save(Forecaster(flow=flow, hidden_channels=4, readout="published"), path)
    result = invoke("verify", str(path))
    assert result.exit_code == 1
    assert "Translation(radius=1), float64: exact" in result.output
    assert "Translation(closed=(5, 5)), float64: broken" in result.output
    assert "So its recurrence is flow equivariant, and what comes out" in result.output
    assert "That is the published readout; " in result.output


def test_verify_of_an_output_that_is_rounded_away_does_not_call_it_broken(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    torch.manual_seed(0)
    model = Forecaster(flow=Translation(radius=1), hidden_channels=4, readout="published")
    torch.nn.init.constant_(model.decoder[-1].bias, 1000.0)
    save(model, path)
    result = invoke("verify", str(path), "--dtype", "bfloat16")
    assert result.exit_code == 1
    assert "Translation(closed=(5, 5)), bfloat16: inconclusive" in result.output
    assert "what comes out of the model is not" not in result.output


def test_verify_of_a_large_kernel_takes_a_canvas_that_holds_it(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Forecaster(flow=Translation(radius=1), hidden_channels=2, kernel_size=13), path)
    result = invoke("verify", str(path))
    assert result.exit_code == 0, result.output
    assert "Translation(closed=(6, 6)), float64: exact" in result.output


def test_verify_of_a_grnn_fails(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Forecaster(hidden_channels=4), path)
    result = invoke("verify", str(path))
    assert result.exit_code == 1
    assert "broken" in result.output


def test_verify_of_weights_that_belong_to_their_velocities_stays_there(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Classifier(flow=Translation(radius=1), hidden_channels=4, transport="learned"), path)
    result = invoke("verify", str(path))
    assert "which pools over V, on its own V, so not exact" in result.output


def test_verify_says_why_the_forecast_of_a_model_that_turns_is_broken(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Forecaster(flow=Rotation(count=1), hidden_channels=4), path)
    result = invoke("verify", str(path))
    assert result.exit_code == 0, result.output  # its recurrence is what can be equivariant
    assert "float64: interpolated" in result.output
    assert "float64: broken" in result.output
    assert "So it must be: its decoder is of ordinary convolutions" in result.output


def test_verify_of_a_rotation_at_rest(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Forecaster(flow=Rotation(count=0), hidden_channels=2), path)
    result = invoke("verify", str(path))
    assert result.exit_code == 1
    assert "Rotation(count=1" in result.output


def test_verify_of_a_classifier_uses_its_logits(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Classifier(flow=Translation(closed=(5, 5)), hidden_channels=4), path)
    result = invoke("verify", str(path))
    assert result.exit_code == 0, result.output


def test_verify_refuses_a_model_without_a_flow(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(CNN3D(), path)
    result = invoke("verify", str(path))
    assert result.exit_code == 2
    assert "no flow" in result.output


def test_verify_refuses_an_unknown_dtype(tmp_path, invoke):
    path = tmp_path / "model.safetensors"
    save(Forecaster(hidden_channels=4), path)
    result = invoke("verify", str(path), "--dtype", "int8")
    assert result.exit_code == 2
    assert "int8" in result.output


def test_verify_of_a_missing_file_is_one_line():
    command = [sys.executable, "-m", "fernn.cli", "verify", "[/x]nowhere.safetensors"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "[/x]nowhere.safetensors" in result.stderr
    assert "Traceback" not in result.stdout + result.stderr


def test_verify_of_pretrained_weights_by_name(invoke):
    result = invoke("verify", "translating-mnist/grnn", "--steps", "2")
    assert result.exit_code == 1
    assert "Translation(radius=1), float64: broken" in result.output
    error = str(invoke("verify", "translating-mnist/grn").exception)
    assert "Did you mean translating-mnist/grnn?" in error
    result = invoke("verify", "translating-mnist/grnn", "--record", "errors.json")
    assert "--record is for tables" in result.output


def test_verify_of_a_pretrained_fernn_passes(invoke):
    result = invoke("verify", "translating-mnist/fernn-v2", "--steps", "4")
    assert result.exit_code == 0, result.output
    assert "Translation(closed=(5, 5)), float64: exact" in result.output


def test_verify_of_pretrained_weights_that_turn_takes_their_canvas(invoke, monkeypatch):
    shapes = []

    def verify(model, video, flow, **options):
        shapes.append(tuple(video.shape[1:]))
        return SimpleNamespace(verdict="interpolated", flow=flow)

    monkeypatch.setattr("fernn.experiments.pretrained.verify", verify)
    assert invoke("verify", "rotating-mnist/fernn-v4", "--steps", "3").exit_code == 0
    assert shapes == [(3, 1, 40, 40), (3, 1, 15, 15)]  # and quarter turns


def test_verify_of_a_run_takes_what_it_kept(tmp_path, invoke, monkeypatch):
    recipe = find("table1/rotation/fernn-v4-comoving", "quick")
    (tmp_path / RECIPE).write_text(json.dumps(to_json(recipe)))
    save(recipe.build(), tmp_path / BEST)
    shapes = []

    def verify(model, video, flow, **options):
        shapes.append(tuple(video.shape[1:]))
        return SimpleNamespace(verdict="interpolated", flow=flow)

    monkeypatch.setattr("fernn.experiments.pretrained.verify", verify)
    assert invoke("verify", str(tmp_path), "--steps", "3").exit_code == 0
    assert shapes == [(3, 1, *recipe.data.canvas), (3, 1, 15, 15)]


def test_verify_and_evaluate_refuse_weights_that_the_record_is_not_of(tmp_path, invoke):
    recipe = find("table1/translation/grnn", "quick")
    digest = "0" * 64
    run = write_run(tmp_path, recipe.name, metrics={}, model=recipe.build(), best_sha256=digest)
    for command in ("verify", "evaluate"):
        error = str(invoke(command, str(run)).exception)
        assert f"got {run / BEST}, which was changed since: its SHA-256 is not {digest}" in error


def test_verify_of_a_run_without_weights_asks_for_an_epoch(tmp_path, invoke):
    (tmp_path / RECIPE).write_text(json.dumps(to_json(find("table1/translation/grnn", "quick"))))
    error = invoke("verify", str(tmp_path)).exception
    assert "without best.safetensors: has it finished an epoch?" in str(error)


def test_verify_of_all_pretrained_weights_is_a_table(tmp_path, invoke, monkeypatch):
    grnn = "translating-mnist/grnn"
    monkeypatch.setattr("fernn.models.pretrained", lambda: (grnn,))
    monkeypatch.setattr(pretrained, "pretrained", lambda: (grnn,))
    path = tmp_path / "errors.json"
    result = invoke("verify", "pretrained", "--record", str(path))
    assert result.exit_code == 0, result.output
    assert "every verdict is as the theory says" in result.output
    (row,) = json.loads(path.read_text(encoding="utf-8"))["rows"]
    assert (row["name"], row["verdict"]) == (grnn, "broken")
    monkeypatch.setattr(pretrained.Verified, "as_expected", False)
    result = invoke("verify", "pretrained")
    assert result.exit_code == 1
    assert "1 verdicts differ" in result.output


def test_demo_verifies_trains_and_writes_the_report(tmp_path, invoke, monkeypatch):
    few = [case for case in verification.cases() if case.flow_name == "closed 5×5"][:2]
    monkeypatch.setattr(verification, "cases", lambda: few)
    asked = []
    monkeypatch.setattr(
        "fernn.experiments.train.train", lambda recipe, *_, **__: asked.append(recipe)
    )
    quick = partial(showcase.forecast, horizon=2)
    monkeypatch.setattr(showcase, "forecast", quick)
    monkeypatch.setattr(progress, "EVERY_SECONDS", 0.0)
    result = invoke("demo", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "every verdict is as the theory says" in result.output
    assert [(recipe.name, recipe.scale) for recipe in asked] == [(n, "quick") for n in ROWS]
    assert (
        "\nforecast by pretrained weights (1 of 16)  0%\nfigure 14 (2 of 16)  6%" in result.output
    )
    assert (tmp_path / "counterexample.png").exists()
    assert (tmp_path / "forecast.png").exists()
    assert (tmp_path / "forecast.gif").exists()
    assert "2 frames forecast from 10" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert (tmp_path / "report.html").exists()
    assert str(tmp_path / "report.html") in result.output.replace("\n", "")


def test_verify_table_is_whole_on_a_narrow_screen(invoke, monkeypatch):
    few = [case for case in verification.cases() if case.flow_name == "closed 5×5"][:1]
    monkeypatch.setattr(verification, "cases", lambda: few)
    result = invoke("verify")
    assert result.stderr.startswith("verifying 1 of 1")
    output = result.output
    assert "interpolation" in output
    assert "…" not in output


@pytest.mark.parametrize("name", ["translating-mnist", "rotating-mnist", "bouncing-mnist"])
def test_data_show_draws_a_sheet_and_an_animation(name, tmp_path, invoke):
    result = invoke("data", "show", name, "--split", "test", "--out", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / f"{name}.gif").read_bytes().startswith(b"GIF8")


def test_a_path_may_hold_what_looks_like_markup(tmp_path, invoke):
    out = tmp_path / "[bold]w[/red]"
    result = invoke("data", "show", "translating-mnist", "--split", "test", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "[bold]w[/red]/translating-mnist.png" in result.output.replace("\n", "")


def test_the_version(invoke):
    assert invoke("--version").output == f"fernn {__version__}\n"


def test_data_show_refuses_what_it_does_not_know(tmp_path, invoke):
    assert "translating-mnist" in invoke("data", "show", "cats").output
    assert "--data" in invoke("data", "show", "clips").output
    result = invoke("data", "show", "translating-mnist", "--data", str(tmp_path))
    assert isinstance(result.exception, DataError)
    assert "train-images" in str(result.exception)


def test_data_show_refuses_a_picture_for_a_folder(tmp_path, invoke):
    result = invoke("data", "show", "translating-mnist", "--out", str(tmp_path / "a.png"))
    assert result.exit_code == 2
    assert "--out must be a folder, for two pictures" in result.output
    assert not list(tmp_path.iterdir())


def test_data_prepare_refuses_other_names(tmp_path, invoke):
    result = invoke("data", "prepare", "ucf", "--source", str(tmp_path), "--out", "x.npz")
    assert result.exit_code == 2
    assert "kth" in result.output


def test_data_fetch_names_the_option_of_a_folder_that_is_none(tmp_path, invoke):
    file = tmp_path / "file"
    file.touch()
    result = invoke("data", "fetch", "mnist", "--out", str(file))
    assert result.exit_code == 2
    assert "'--out'" in result.output
    error = invoke("data", "fetch", "mnist", "--out", str(file / "folder")).exception
    assert "`--out` must be a path that can be written to" in str(error)


def test_data_fetch_of_an_unknown_name_is_one_line(tmp_path):
    command = [sys.executable, "-m", "fernn.cli", "data", "fetch", "cats", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 2
    assert "cats" in result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert not list(tmp_path.iterdir())
