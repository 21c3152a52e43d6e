"""What a run does when a step cannot be taken, or a file cannot be written."""

import errno
import json
import math
import signal

import pytest
import torch
from rich.console import Console
from trained import Told, assert_equal, poison, weights

from fernn.experiments import (
    checkpoint,
    datasets,
    fabric,
    glimpses,
    objective,
    records,
    runs,
    step,
    train,
)
from fernn.experiments.board import Board
from fernn.experiments.loop import Loop
from fernn.experiments.progress import Lines
from fernn.experiments.recipes import find
from fernn.experiments.results import load_one


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_the_run(bad, tiny, tmp_path, monkeypatch):
    poison(monkeypatch, 6, bad)
    with pytest.raises(train.DivergedError, match="loss of step 6 is not finite"):
        train.train(tiny, out=tmp_path, device="cpu")
    run = runs.folder(tmp_path, tiny, 0)
    assert runs.read_record(run) is None
    assert all(bool(value.isfinite().all()) for value in weights(run).values())
    _, state = checkpoint.read(run / runs.CHECKPOINTS, print)
    assert state["step"] == 5
    # The state is good: without the poison the run ends as one that was never stopped.
    monkeypatch.undo()
    train.train(tiny, out=tmp_path, device="cpu")
    train.train(tiny, out=tmp_path / "whole", device="cpu")
    assert_equal(weights(run), weights(runs.folder(tmp_path / "whole", tiny, 0)))


def test_a_loss_that_runs_away_is_told_of(tiny, tmp_path, monkeypatch):
    last = train.train(tiny, out=tmp_path / "fine", device="cpu", report=(fine := Told()))["epochs"]
    assert last > 1
    poison(monkeypatch, tiny.data.train_size // tiny.training.batch_size + 1, 1e9)
    train.train(tiny, out=tmp_path, device="cpu", report=(told := Told()))
    word = "such a run seldom recovers"
    assert sum(word in text for text in told.said) == 1
    assert not any(word in text for text in fine.said)


def test_statistics_that_a_bad_step_moved_are_not_saved(tmp_path, monkeypatch):
    """Batch-norm takes them from the forward pass, before anybody knows the loss."""
    monkeypatch.setattr(glimpses, "SIZES", {"train": 12, "val": 6, "test": 6})
    monkeypatch.setattr(datasets, "glimpses", glimpses.glimpses.__wrapped__)
    recipe = find("table2/actions/cnn3d", "quick").but(training={"epochs": 2})
    poison(monkeypatch, 5, math.nan)
    with pytest.raises(train.DivergedError, match="loss of step 5 is not finite"):
        train.train(recipe, out=tmp_path / "bad", device="cpu")
    bad, whole = (runs.folder(tmp_path / out, recipe, 0) for out in ("bad", "whole"))
    assert checkpoint.read(bad / runs.CHECKPOINTS, pytest.fail)[1]["step"] == 3
    for out in ("bad", "whole"):
        train.train(recipe, out=tmp_path / out, device="cpu")
    assert any("running_mean" in name for name in weights(bad))
    assert_equal(weights(bad), weights(whole))


@pytest.fixture
def half(monkeypatch):
    """float16 with loss scaling, on a CPU; what it is slow at is not refused."""
    monkeypatch.setattr(fabric, "resolved", lambda *_: "cpu")


def _overflowing(monkeypatch, steps):
    """The gradient overflows in these steps, while the loss stays finite."""
    honest, calls = objective.loss, []

    def overflowing(recipe, model, batch):
        loss = honest(recipe, model, batch)
        if model.training:
            calls.append(None)
            if len(calls) in steps:
                loss.register_hook(lambda gradient: gradient * math.inf)
        return loss

    monkeypatch.setattr(objective, "loss", overflowing)
    return calls


@pytest.mark.parametrize("ahead", [False, True])
def test_a_gradient_that_is_not_finite_stops_the_run(ahead, tiny, tmp_path, monkeypatch):
    """Though the loss is."""
    monkeypatch.setattr(step, "works_ahead", lambda fabric: ahead)
    _overflowing(monkeypatch, {6})
    with pytest.raises(train.DivergedError, match="gradient of step 6 is not finite"):
        train.train(tiny, out=tmp_path, device="cpu")
    run = runs.folder(tmp_path, tiny, 0)
    assert checkpoint.read(run / runs.CHECKPOINTS, pytest.fail)[1]["step"] == 5
    assert all(bool(value.isfinite().all()) for value in weights(run).values())


def test_a_gradient_that_overflows_now_and_then_is_skipped(half, tiny, tmp_path, monkeypatch):
    _overflowing(monkeypatch, (1, 2, 7))
    assert train.train(tiny, out=tmp_path, precision="16-mixed")["epochs"] == 2
    _, state = checkpoint.read(runs.folder(tmp_path, tiny, 0) / runs.CHECKPOINTS, pytest.fail)
    assert state["scaler"]["scale"] == 2.0**13


def test_a_gradient_that_overflows_for_ever_stops_the_run(half, tiny, tmp_path, monkeypatch):
    long = tiny.but(training={"epochs": 4})
    calls = _overflowing(monkeypatch, range(9, 26))
    with pytest.raises(train.DivergedError, match="gradient in float16 of step 25 is not finite"):
        train.train(long, out=tmp_path, precision="16-mixed")
    assert len(calls) == 25  # eight good ones, and from 2^16 down to 1
    kept = weights(runs.folder(tmp_path, long, 0))
    assert all(bool(value.isfinite().all()) for value in kept.values())
    # From here on nothing overflows any more: the run goes on from what it kept.
    assert train.train(long, out=tmp_path, precision="16-mixed")["epochs"] == 4
    assert len(calls) == 25 + 8


@pytest.mark.gpu
def test_a_gradient_that_overflows_for_ever_stops_the_run_on_a_gpu(tiny, tmp_path, monkeypatch):
    honest = objective.loss
    monkeypatch.setattr(objective, "loss", lambda *given: honest(*given) * 1e12)
    with pytest.raises(train.DivergedError, match="gradient in float16 of step 17 is not finite"):
        train.train(
            tiny.but(training={"epochs": 4}), out=tmp_path, device="cuda", precision="16-mixed"
        )


def _small_memory(monkeypatch, most):
    honest = objective.loss

    def small(recipe, model, batch):
        if len(batch.frames) > most:
            raise torch.OutOfMemoryError("made up")
        return honest(recipe, model, batch)

    monkeypatch.setattr(objective, "loss", small)


def test_out_of_memory_halves_the_micro_batch(tiny, tmp_path, monkeypatch):
    train.train(tiny, out=tmp_path / "roomy", device="cpu", precision="64-true")
    _small_memory(monkeypatch, 1)
    told = Told()
    record = train.train(
        tiny, out=tmp_path / "tight", device="cpu", precision="64-true", report=told
    )
    said = [text for text in told.said if "out of memory" in text]
    assert len(said) == 2  # 4 → 2 → 1, and then it is remembered
    assert "going on with 1, added up to the same batch of 4" in said[1]
    assert record["micro_batch"] == 1
    roomy, tight = (weights(runs.folder(tmp_path / n, tiny, 0)) for n in ("roomy", "tight"))
    assert_equal(roomy, tight, 1e-9)


def test_a_model_that_never_fits_says_so(tiny, tmp_path, monkeypatch):
    _small_memory(monkeypatch, 0)
    with pytest.raises(MemoryError, match="too small for 1 sequences"):
        train.train(tiny, out=tmp_path, device="cpu")


def test_a_full_disk_does_not_stop_a_run(tiny, tmp_path, monkeypatch):
    written = checkpoint.save_file
    full = [True]

    def save_file(tensors, path):
        if full[0]:
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        written(tensors, path)

    class Cleaner(Told):
        def validated(self, line, epochs, *, best):
            full[0] = line["epoch"] < 2  # somebody frees some space in the second epoch

    monkeypatch.setattr(checkpoint, "save_file", save_file)
    told = Cleaner()
    run = runs.folder(tmp_path, tiny, 0)
    train.train(tiny, out=tmp_path, device="cpu", report=told, save_minutes=0)
    said = [text for text in told.said if "cannot save" in text]
    assert len(said) == 1  # of eight that failed for the same reason
    assert f"No space left on device: '{run / runs.CHECKPOINTS}" in said[0]
    assert ".part" not in said[0]
    assert told.said.count("saving works again") == 1
    assert runs.read_record(run) is not None
    assert not list(run.rglob("*.part"))
    assert checkpoint.read(run / runs.CHECKPOINTS, print)[1]["step"] == 16


def test_a_finished_run_waits_for_a_full_disk(tiny, tmp_path, monkeypatch):
    written, tries = records.write, []

    def full_for_a_while(path, record):
        if path.name == runs.RECORD:
            tries.append(path)
            if len(tries) < 4:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
        written(path, record)

    monkeypatch.setattr(records, "write", full_for_a_while)
    monkeypatch.setattr(runs, "PAUSE", 0.0)
    told = Told()
    record = train.train(tiny, out=tmp_path, device="cpu", report=told)
    assert runs.read_record(runs.folder(tmp_path, tiny, 0)) == record
    (said,) = [text for text in told.said if "cannot save" in text]
    assert f"No space left on device: '{tries[0]}'" in said
    assert "waits 60 minutes for you to free some space" in said


def test_nobody_waits_for_ever(monkeypatch):
    def full():
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(runs, "PAUSE", 0.0)
    monkeypatch.setattr(runs, "PATIENCE", 0.05)
    with pytest.raises(OSError, match="No space left on device"):
        runs.insist(full, [].append)


def test_a_stop_says_what_was_not_saved(tiny, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    class Stopping(Told):
        def step(self, done, loss, rate):
            if done == 5:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(checkpoint, "save_file", full)
    told = Stopping()
    with pytest.raises(train.Interrupted):
        train.train(tiny, out=tmp_path, device="cpu", report=told, save_minutes=0)
    assert len([text for text in told.said if "cannot save" in text]) == 2  # the first, the last


@pytest.mark.parametrize("out", ["a file/runs", "a file"])
def test_a_folder_that_cannot_be_written_to_is_refused(out, tiny, tmp_path):
    (tmp_path / "a file").touch()
    with pytest.raises(
        OSError, match=r"`--out` must be a folder that can be written to, got .*a f"
    ):
        train.train(tiny, out=tmp_path / out, device="cpu")


def test_a_board_that_cannot_be_written_is_told_of_once(tmp_path):
    (tmp_path / "file").write_text("in the way")
    told, line = Told(), {"step": 1, "train_loss": 1.0, "val_loss": 1.0, "lr": 1e-3}
    board = Board(tmp_path / "file" / "tensorboard", told.say)
    for _ in range(2):
        board.add(line)
    board.close()
    assert len(told.said) == 1
    assert "curve.jsonl alone" in told.said[0]


def test_a_validation_that_is_not_finite_is_null(tiny, tmp_path, monkeypatch, capsys):
    losses = iter([math.nan, 2.0])
    monkeypatch.setattr(Loop, "_validate", lambda loop: next(losses))
    report = Lines(Console(force_terminal=False, width=200))
    record = train.train(tiny, out=tmp_path, device="cpu", report=report)
    run = runs.folder(tmp_path, tiny, 0)
    for line in ((run / runs.RECORD).read_text(), *(run / runs.CURVE).read_text().splitlines()):
        json.loads(line, parse_constant=pytest.fail)
    for checkpointed in (run / runs.CHECKPOINTS).glob("*.json"):
        json.loads(checkpointed.read_text(), parse_constant=pytest.fail)
    assert [line["val_loss"] for line in record["curve"]] == [None, 2.0]
    assert runs.read_record(run) == record
    assert runs.read_curve(run) == record["curve"]
    assert record["best_epoch"] == 2
    assert "val not finite" in capsys.readouterr().out


def test_not_a_number_in_an_older_file_is_none(tmp_path):
    (tmp_path / runs.CURVE).write_text('{"val_loss": NaN}\n{"val_loss": Infinity}\n')
    assert runs.read_curve(tmp_path) == [{"val_loss": None}] * 2
    (tmp_path / runs.RECORD).write_text('{"metrics": {"test_mse": -Infinity}}')
    assert runs.read_record(tmp_path) == {"metrics": {"test_mse": None}}
    assert load_one(tmp_path).number("test_mse") is None
