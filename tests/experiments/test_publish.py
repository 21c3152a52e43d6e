"""publish: a finished run becomes weights in half precision and a record that checks them."""

import sys

import pytest
import torch
from synthetic import ENVIRONMENT, forecast_metrics, write_run

import fernn
from fernn.experiments import publish as publishing
from fernn.experiments import records, runs, train
from fernn.experiments.evaluate import sequence_errors
from fernn.experiments.publish import publish
from fernn.models import _pretrained, pretrained_record

NAME = "translating-mnist/tiny"


@pytest.fixture
def tiny(tiny):
    return tiny.but(data={"test_size": publishing.SEQUENCES})


@pytest.fixture
def run(tmp_path, tiny):
    metrics = forecast_metrics(tiny.name, "quick")
    return write_run(
        tmp_path, tiny.name, scale="quick", recipe=tiny, metrics=metrics, model=tiny.build()
    )


def test_publish_writes_what_load_pretrained_reads(run, tmp_path, tiny, monkeypatch):
    record = publish(run, NAME, folder=tmp_path / "weights")
    monkeypatch.setattr(_pretrained, "FOLDER", tmp_path / "weights")
    assert fernn.pretrained() == (NAME,)
    assert pretrained_record(NAME) == record
    model = fernn.load_pretrained(NAME)
    kept = fernn.load(run / runs.BEST)
    for name, value in model.state_dict().items():
        assert torch.equal(value, kept.state_dict()[name].half().float())
    found = sequence_errors(model, tiny, publishing.SEQUENCES)
    assert record["check"]["sequence_mse"] == found
    assert record["check"]["mean"] == pytest.approx(sum(found) / len(found))
    assert record["check"]["mean"] != record["check"]["mean_unrounded"]
    assert record["metrics"]["test_mse"] == 1e-3
    assert record["curve"] == runs.read_record(run)["curve"]


def test_the_working_tree_is_looked_at_before_weights_change_it(run, tmp_path, monkeypatch):
    folder = tmp_path / "weights"
    monkeypatch.setattr(records, "environment", lambda: {"dirty": folder.exists()})
    assert publish(run, NAME, folder=folder)["check"]["environment"] == {"dirty": False}


def test_sequence_errors_are_those_of_the_first_test_sequences(tiny):
    model = tiny.build()
    two, three = (sequence_errors(model, tiny, count) for count in (2, 3))
    assert two == three[:2]
    assert model.training  # left as it was found
    frames = publishing_frames(tiny)
    model.eval()
    with torch.no_grad():
        error = (model(frames[:, :2], 2) - frames[:, 2:]).square().mean((1, 2, 3, 4))
    assert three == pytest.approx(error.tolist(), rel=1e-5)


def publishing_frames(recipe):
    from fernn.data import FlowingMNIST

    data = recipe.data
    videos = FlowingMNIST(data.test_flow, "test", canvas=data.canvas, length=4, size=4, seed=0)
    return videos.batch([0, 1, 2], epoch=0).frames


@pytest.mark.parametrize("name", ["tiny", "Translating/tiny", "../a/b", "a/b/c"])
def test_publish_refuses_names_of_another_form(name, run, tmp_path):
    with pytest.raises(ValueError, match="`name` must be DATA/MODEL"):
        publish(run, name, folder=tmp_path / "weights")


def test_publish_refuses_runs_that_nobody_could_repeat(tmp_path, tiny):
    for place, changes in enumerate(
        (
            {"environment": ENVIRONMENT | {"dirty": True}},
            {"environment": ENVIRONMENT | {"commit": None}},
            {"commits": ["unknown", "0" * 40]},
            {"commits": ["0" * 40 + "+", "0" * 40]},
        )
    ):
        metrics = forecast_metrics(tiny.name, "quick")
        run = write_run(
            tmp_path / str(place),
            tiny.name,
            scale="quick",
            recipe=tiny,
            metrics=metrics,
            model=tiny.build(),
            **changes,
        )
        with pytest.raises(ValueError, match="commit without changes"):
            publish(run, NAME, folder=tmp_path / "weights")


def test_publish_refuses_weights_that_its_record_is_not_of(tmp_path, tiny):
    record = train.train(tiny, out=tmp_path, device="cpu")
    folder = runs.folder(tmp_path, tiny, 0)
    clean = {"environment": ENVIRONMENT, "commits": [ENVIRONMENT["commit"]]}
    records.write(folder / runs.RECORD, record | clean)
    publish(folder, NAME, folder=tmp_path / "weights")
    fernn.save(tiny.build(), folder / runs.BEST)
    with pytest.raises(ValueError, match="must hold the weights that its record is of"):
        publish(folder, NAME, folder=tmp_path / "weights")
    (folder / runs.BEST).unlink()
    with pytest.raises(FileNotFoundError, match="without best"):
        publish(folder, NAME, folder=tmp_path / "weights")


def test_publish_refuses_what_diverged_and_what_is_too_large(run, tmp_path, tiny, monkeypatch):
    metrics = forecast_metrics(tiny.name, "quick") | {"test_mse": None}
    bad = write_run(tmp_path / "bad", tiny.name, scale="quick", recipe=tiny, metrics=metrics)
    with pytest.raises(ValueError, match="finite test MSE"):
        publish(bad, NAME, folder=tmp_path / "weights")
    monkeypatch.setattr(publishing, "MOST_BYTES", 100)
    with pytest.raises(ValueError, match="at most 100 bytes in float16"):
        publish(run, NAME, folder=tmp_path / "weights")
    assert not (tmp_path / "weights").exists()


def test_main_prints_how_it_is_called(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["publish"])
    with pytest.raises(SystemExit, match="RUN NAME"):
        publishing.main()
