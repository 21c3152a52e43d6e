"""Several processes share every batch, and take the steps that one would take with all of it."""

import json
import os
import subprocess
import sys

import torch
from safetensors.torch import load_file

from fernn.experiments import runs, train


def test_two_processes_take_the_steps_of_one(tiny, settings, tmp_path):
    command = [sys.executable, "-m", "fernn.cli", "train", tiny.name, "--scale", "quick"]
    command += ["--device", "cpu", "--devices", "2", "--precision", "64-true"]
    command += ["--out", str(tmp_path / "two")]
    command += [word for setting in settings for word in ("--set", setting)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    train.train(tiny, out=tmp_path / "one", device="cpu", precision="64-true")
    two, one = (runs.folder(tmp_path / name, tiny, 0) for name in ("two", "one"))
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
