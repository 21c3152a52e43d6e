"""Nothing is lost: a run that was killed, stopped or damaged ends as if nothing had happened."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from safetensors.torch import load_file

from fernn.experiments import checkpoint, datasets, objective, runs, train
from fernn.experiments.progress import Report
from fernn.experiments.recipes import to_json


class At(Report):
    """Does something at one step, and keeps what it is told."""

    def __init__(self, step, do):
        self.at, self.do, self.said, self.steps = step, do, [], []

    def say(self, text):
        self.said.append(text)

    def step(self, done, loss, rate):
        self.steps.append(done)
        if done == self.at:
            self.do()


def _state(run):
    return checkpoint.read(run / runs.CHECKPOINTS, pytest.fail)


def _assert_same_end(one, other):
    """All tensors of the last checkpoints to the bit: weights, moments, best weights, generator."""
    (tensors, state), (others, expected) = _state(one), _state(other)
    assert tensors.keys() == others.keys()
    assert any(name.startswith("optimizer/") for name in tensors)
    for name in tensors:
        assert torch.equal(tensors[name], others[name]), name
    clocks = ("seconds", "train_seconds", "curve", "commits")
    assert [v for k, v in state.items() if k not in clocks] == [
        v for k, v in expected.items() if k not in clocks
    ]
    best = [load_file(run / runs.BEST) for run in (one, other)]
    assert all(torch.equal(best[0][name], best[1][name]) for name in best[0])
    curves = [runs.read_curve(run) for run in (one, other)]
    assert len(curves[0]) == len(curves[1])
    for line, other_line in zip(*curves, strict=True):
        assert line | {"seconds": 0} == other_line | {"seconds": 0}


@pytest.fixture
def whole(tiny, tmp_path):
    train.train(tiny, out=tmp_path / "whole", device="cpu")
    return runs.folder(tmp_path / "whole", tiny, 0)


# A process that is killed while it trains, or while it writes its fifth checkpoint.
KILLED = """
import json, os, signal, sys
import torch
from fernn.experiments import checkpoint, train
from fernn.experiments.progress import Report
from fernn.experiments.recipes import to_json
from fernn.experiments.recipes import from_json

torch.set_num_threads(1)
when, out, recipe = sys.argv[1:]
save, saves = checkpoint.save_file, []

class Killed(Report):
    def step(self, done, loss, rate):
        if when == "step" and done == 6:
            os.kill(os.getpid(), signal.SIGKILL)

def half(tensors, path):
    save(tensors, path)
    saves.append(path)
    if when == "save" and len(saves) == 5:
        os.truncate(path, 100)
        os.kill(os.getpid(), signal.SIGKILL)

checkpoint.save_file = half
plain = json.loads(recipe)
train.train(from_json(plain), out=out, device="cpu", save_minutes=0, report=Killed())
"""


@pytest.mark.parametrize(("when", "done"), [("step", 5), ("save", 4)])
def test_sigkill_in_mid_epoch_changes_nothing(when, done, tiny, tmp_path, whole):
    out = tmp_path / "killed"
    run = runs.folder(out, tiny, 0)
    command = [sys.executable, "-c", KILLED, when, str(out), json.dumps(to_json(tiny))]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    killed = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert runs.read_record(run) is None
    assert bool(list(run.rglob("*.part"))) == (when == "save")
    told = At(None, None)
    train.train(tiny, out=out, device="cpu", report=told)
    assert f"resuming {run} at step {done} of 16" in told.said
    assert told.steps == [*range(done + 1, 17)]
    _assert_same_end(run, whole)
    assert not list(run.rglob("*.part"))


@pytest.mark.parametrize("step", [1, 5, 8, 16])
def test_ctrl_c_saves_and_the_run_goes_on(step, tiny, tmp_path, whole):
    run = runs.folder(tmp_path / "stopped", tiny, 0)
    before, threads = signal.getsignal(signal.SIGINT), threading.enumerate()
    report = At(step, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(train.Interrupted):
        train.train(tiny, out=tmp_path / "stopped", device="cpu", report=report)
    assert signal.getsignal(signal.SIGINT) is before
    assert runs.read_record(run) is None
    assert _state(run)[1]["step"] == step  # it takes no other, and none is done again
    assert report.said.count(train.STOPPING) == 1
    assert not [thread for thread in threading.enumerate() if thread not in threads]
    first = runs.read_curve(run)
    train.train(tiny, out=tmp_path / "stopped", device="cpu")
    _assert_same_end(run, whole)
    assert runs.read_curve(run)[: len(first)] == first
    record = runs.read_record(run)
    assert record["wall_seconds"] >= record["curve"][-1]["seconds"]


@pytest.fixture
def _heard():
    """Ctrl-C as in a terminal: a shell lets what it starts in the background ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_heard")
def test_a_second_ctrl_c_within_one_call_stops_at_once():
    """Signals that come while Python is in a library are one to its handler."""
    code = """
import hashlib, os, signal, threading, time
from fernn.experiments import train

told = threading.Event()

def twice():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGINT)
    told.wait()
    os.kill(os.getpid(), signal.SIGINT)

with train._wish_to_stop(lambda: (print("told", flush=True), told.set())) as stop:
    if os.fork() == 0:  # a child that outlives the context must not hold it
        time.sleep(60)
    threading.Thread(target=twice).start()
    try:
        for _ in range(40):
            hashlib.pbkdf2_hmac("sha256", b"", b"", 3_000_000)  # a second or so
        print("never")
    except KeyboardInterrupt:
        print("stopped", flush=True)
print("left", flush=True)
os.killpg(0, signal.SIGKILL)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=50, start_new_session=True
    )
    assert done.stdout.split() == ["told", "stopped", "left"], done.stderr


@pytest.mark.usefixtures("_heard")
def test_a_second_ctrl_c_stops_at_once(tiny, tmp_path, whole):
    def twice():
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)

    report = At(10, twice)
    with pytest.raises(KeyboardInterrupt):
        train.train(tiny, out=tmp_path, device="cpu", report=report)
    assert report.said.count(train.STOPPING) == 1
    run = runs.folder(tmp_path, tiny, 0)
    assert _state(run)[1]["step"] == 8  # of the epoch before
    train.train(tiny, out=tmp_path, device="cpu")
    _assert_same_end(run, whole)


@pytest.mark.usefixtures("_heard")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_wish_to_stop_is_answered_while_a_step_lasts(number):
    """In a call that Python runs no handler in, as in a backward pass."""
    answered, taken = [], []
    for _ in range(3):  # the machine may pause in one of them
        begun = time.monotonic()
        hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000)
        taken.append(time.monotonic() - begun)
    rounds = int(2 * 200_000 / min(taken))  # of two seconds on this processor
    wakened = signal.set_wakeup_fd(-1)
    with train._wish_to_stop(lambda: answered.append(time.monotonic())) as stop:
        begun = time.monotonic()
        timer = threading.Timer(0.1, os.kill, (os.getpid(), number))
        timer.start()
        hashlib.pbkdf2_hmac("sha256", b"", b"", rounds)
        ended = time.monotonic()
        timer.join()  # a signal that came later would end all tests
        assert stop()
    (when,) = answered
    assert when < (begun + ended) / 2
    assert signal.set_wakeup_fd(wakened) == -1  # as it was before


def test_a_run_that_fails_after_it_saved_stays(tiny, tmp_path):
    def fail():
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        train.train(tiny, out=tmp_path, device="cpu", report=At(2, fail), save_minutes=0)
    assert (runs.folder(tmp_path, tiny, 0) / runs.RECIPE).is_file()


def test_random_numbers_go_on_where_they_were(tiny, tmp_path, monkeypatch):
    """A model that drops out draws from the global generator at every step."""
    honest = objective.loss

    def dropped(recipe, model, batch):
        frames = torch.nn.functional.dropout(batch.frames, 0.5, model.training)
        return honest(recipe, model, batch._replace(frames=frames))

    monkeypatch.setattr(objective, "loss", dropped)
    train.train(tiny, out=tmp_path / "whole", device="cpu")
    run = _stopped(tiny, tmp_path / "stopped", 5)
    train.train(tiny, out=tmp_path / "stopped", device="cpu")
    whole = runs.folder(tmp_path / "whole", tiny, 0)
    _assert_same_end(run, whole)
    monkeypatch.undo()
    train.train(tiny, out=tmp_path / "plain", device="cpu")
    plain = runs.folder(tmp_path / "plain", tiny, 0)
    generators = [_state(folder)[0]["random/cpu"] for folder in (whole, plain)]
    assert not torch.equal(*generators)  # so that they were drawn from at all


def _stopped(tiny, out, step):
    """A run that saved at every step and was stopped after this one."""
    report = At(step, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(train.Interrupted):
        train.train(tiny, out=out, device="cpu", report=report, save_minutes=0)
    return runs.folder(out, tiny, 0)


@pytest.mark.parametrize(("before", "after", "kept"), [(1, None, 1), (None, 2, 2), (2, 1, 1)])
def test_a_run_goes_on_in_the_smaller_micro_batches(before, after, kept, tiny, tmp_path):
    """Those that fitted before, or fewer where the device has become smaller."""
    report = At(3, lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(train.Interrupted):
        train.train(tiny, out=tmp_path, device="cpu", micro_batch=before, report=report)
    record = train.train(tiny, out=tmp_path, device="cpu", micro_batch=after)
    assert record["micro_batch"] == kept


def test_a_corrupted_checkpoint_falls_back_to_the_previous_one(tiny, tmp_path, whole):
    run = _stopped(tiny, tmp_path / "bad", 6)
    newest = max((run / runs.CHECKPOINTS).glob("*.safetensors"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 255
    newest.write_bytes(data)
    told = At(None, None)
    train.train(tiny, out=tmp_path / "bad", device="cpu", report=told)
    assert sum("cannot be used" in text for text in told.said) == 1
    assert any("at step 5" in text or "at step 6" in text for text in told.said)
    _assert_same_end(run, whole)


def test_other_data_is_refused(tiny, tmp_path, monkeypatch):
    _stopped(tiny, tmp_path, 2)
    monkeypatch.setattr(datasets, "source", lambda *_: "MNIST")
    with pytest.raises(ValueError, match="began with, 'embedded digits', got 'MNIST'"):
        train.train(tiny, out=tmp_path, device="cpu")


def test_the_same_archive_may_be_renamed(tmp_path):
    runs.check_data(tmp_path, ("mine", "a"), ("copy", "a"))
    runs.check_data(tmp_path, ("mine", None), ("mine", "a"))  # an old run, which says no more
    with pytest.raises(ValueError, match="began with, 'mine', got 'copy'"):
        runs.check_data(tmp_path, ("mine", "a"), ("copy", "b"))
    with pytest.raises(ValueError, match=r"SHA-256 .* began with, 'a', got 'b'"):
        runs.check_data(tmp_path, ("mine", "a"), ("mine", "b"))


def test_another_precision_is_refused_and_another_device_is_told_of(tiny, tmp_path, whole):
    run = _stopped(tiny, tmp_path / "moved", 2)
    with pytest.raises(ValueError, match=r"`--precision` must be .* '32-true', got 'bf16-mixed'"):
        train.train(tiny, out=tmp_path / "moved", device="cpu", precision="bf16-mixed")
    tensors, state = _state(run)
    checkpoint.write(run / runs.CHECKPOINTS, tensors, state | {"device": "cuda"})
    told = At(None, None)
    train.train(tiny, out=tmp_path / "moved", device="cpu", report=told)
    assert "on cpu from here on; on cuda until now" in told.said
    _assert_same_end(run, whole)


@pytest.mark.gpu
def test_a_run_moves_to_a_gpu(tiny, tmp_path, whole):
    _stopped(tiny, tmp_path / "moved", 6)
    told = At(None, None)
    record = train.train(tiny, out=tmp_path / "moved", device="cuda", report=told)
    assert "on cuda from here on; on cpu until now" in told.said
    assert told.steps[0] in (7, 8)
    expected = runs.read_record(whole)["metrics"]["test_mse"]
    assert record["metrics"]["test_mse"] == pytest.approx(expected, rel=1e-2)


def test_a_record_names_every_commit_that_trained_the_run(tiny, tmp_path, monkeypatch):
    for step, commit in ((2, "a"), (4, "a"), (6, "b")):
        monkeypatch.setenv("FERNN_COMMIT", commit)
        _stopped(tiny, tmp_path, step)
    monkeypatch.setenv("FERNN_COMMIT", "a")
    record = train.train(tiny, out=tmp_path, device="cpu")
    assert record["commits"] == ["a", "b", "a"]
    assert record["environment"]["commit"] == "a"


def test_a_record_is_of_the_commit_that_trained_not_of_one_made_meanwhile(
    tiny, tmp_path, monkeypatch
):
    monkeypatch.setenv("FERNN_COMMIT", "a")
    told = At(3, lambda: monkeypatch.setenv("FERNN_COMMIT", "b"))
    record = train.train(tiny, out=tmp_path, device="cpu", report=told)
    assert record["commits"] == [record["environment"]["commit"]] == ["a"]


def test_a_checkpoint_from_before_precisions_were_kept_goes_on(tiny, tmp_path, whole):
    run = _stopped(tiny, tmp_path / "old", 2)
    tensors, state = _state(run)
    young = ("precision", "device", "commits")
    old = {name: value for name, value in state.items() if name not in young}
    checkpoint.write(run / runs.CHECKPOINTS, tensors, old)
    record = train.train(tiny, out=tmp_path / "old", device="cpu")
    _assert_same_end(run, whole)
    assert record["commits"][0] == "unknown"


def test_a_checkpoint_of_another_version_is_refused_and_stays(tiny, tmp_path):
    run = _stopped(tiny, tmp_path, 2)
    tensors, state = _state(run)
    (name, *_) = (name for name in tensors if name.startswith("model/"))
    other = {key: value for key, value in tensors.items() if key != name}
    checkpoint.write(run / runs.CHECKPOINTS, other | {f"{name}_renamed": tensors[name]}, state)
    there = sorted((run / runs.CHECKPOINTS).iterdir())
    with pytest.raises(ValueError, match="`--out` must hold checkpoints that this version reads"):
        train.train(tiny, out=tmp_path, device="cpu")
    assert sorted((run / runs.CHECKPOINTS).iterdir()) == there


def test_deleted_checkpoints_begin_again(tiny, tmp_path, whole):
    run = _stopped(tiny, tmp_path / "gone", 10)
    for path in (run / runs.CHECKPOINTS).iterdir():
        path.unlink()
    (run / runs.BEST).unlink()
    told = At(None, None)
    train.train(tiny, out=tmp_path / "gone", device="cpu", report=told)
    assert len(told.steps) == 16
    _assert_same_end(run, whole)


def test_deleted_best_weights_come_back(tiny, tmp_path, whole):
    run = _stopped(tiny, tmp_path / "gone", 10)
    (run / runs.BEST).unlink()
    (run / runs.CURVE).unlink()
    train.train(tiny, out=tmp_path / "gone", device="cpu")
    _assert_same_end(run, whole)


def test_a_run_killed_before_its_record_is_only_evaluated(tiny, tmp_path, whole):
    record = json.loads((whole / runs.RECORD).read_text())
    (whole / runs.RECORD).unlink()
    told = At(None, None)
    again = train.train(tiny, out=tmp_path / "whole", device="cpu", report=told)
    assert told.steps == []
    assert again["metrics"] == record["metrics"]
    assert again["curve"] == record["curve"]
