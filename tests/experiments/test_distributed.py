"""Several processes share every batch, and take the steps that one would take with all of it."""

import json
import os
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file

from fernn.experiments import runs, train
from fernn.experiments.progress import Report
from fernn.experiments.recipes import to_json


def _run(*command):
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def one(tiny, tmp_path):
    """The run of one process, with whole batches."""
    train.train(tiny, out=tmp_path / "one", device="cpu", precision="64-true")
    return runs.folder(tmp_path / "one", tiny, 0)


def _assert_same_steps(two, one):
    records = [json.loads((run / runs.RECORD).read_text()) for run in (two, one)]
    assert [record["processes"] for record in records] == [2, 1]
    assert [record["curve"][-1]["sequences"] for record in records] == [64, 64]
    checkpoints = [
        load_file(max((run / "checkpoints").glob("*.safetensors"))) for run in (two, one)
    ]
    assert checkpoints[0].keys() == checkpoints[1].keys()
    compared = [name for name in checkpoints[0] if name.startswith(("model/", "best/"))]
    assert len(compared) >= 6
    for name in compared:
        assert checkpoints[0][name].dtype == torch.float64
        torch.testing.assert_close(checkpoints[0][name], checkpoints[1][name], rtol=0, atol=1e-9)
    for line, other in zip(*(record["curve"] for record in records), strict=True):
        assert abs(line["val_loss"] - other["val_loss"]) < 1e-9
        assert abs(line["train_loss"] - other["train_loss"]) < 1e-9


def test_two_processes_take_the_steps_of_one(tiny, settings, tmp_path, one):
    """With gradients added up over micro-batches, of which the last alone meets the other's."""
    command = ["-m", "fernn.cli", "train", tiny.name, "--scale", "quick", "--micro-batch", "1"]
    command += ["--device", "cpu", "--devices", "2", "--precision", "64-true"]
    command += ["--out", str(tmp_path / "two")]
    done = _run(*command, *(word for setting in settings for word in ("--set", setting)))
    assert done.returncode == 0, done.stdout + done.stderr
    two = runs.folder(tmp_path / "two", tiny, 0)
    assert json.loads((two / runs.RECORD).read_text())["micro_batch"] == 1
    _assert_same_steps(two, one)


# Two processes that do not see the same folder, as on two machines.
APART = """
import json, os, sys
from fernn.experiments.recipes import from_json
from fernn.experiments.train import train

here, there, recipe = sys.argv[1:]
out = there if int(os.environ.get("LOCAL_RANK", 0)) else here
train(from_json(json.loads(recipe)), out=out, device="cpu", devices=2, precision=%r)
"""


@pytest.fixture
def apart(tmp_path, tiny):
    def run(precision):
        script = tmp_path / "apart.py"
        script.write_text(APART % precision)
        there = tmp_path / "another machine"
        done = _run(str(script), str(tmp_path / "here"), str(there), json.dumps(to_json(tiny)))
        assert not there.exists()
        return done

    return run


def test_the_first_process_alone_needs_the_folder(tiny, tmp_path, one, apart):
    class Stops(Report):
        def step(self, done, loss, rate):
            if done == 5:
                signal.raise_signal(signal.SIGTERM)

    with pytest.raises(train.Interrupted):
        train.train(tiny, out=tmp_path / "here", device="cpu", precision="64-true", report=Stops())
    refused = apart("32-true")
    assert refused.returncode != 0
    # Both give up for the reason that the first of them has; neither waits for the other.
    said = "`--precision` must be what the run in"
    assert refused.stderr.count(f"ValueError: {said}") == 2, refused.stderr
    done = apart("64-true")
    assert done.returncode == 0, done.stdout + done.stderr
    _assert_same_steps(runs.folder(tmp_path / "here", tiny, 0), one)
