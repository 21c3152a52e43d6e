"""Checkpoints: whole or not there; a broken one is told of, and the one before it serves."""

import errno
import json

import pytest
import torch

from fernn.experiments import checkpoint


@pytest.fixture
def told():
    return []


def _write(folder, *values):
    for value in values:
        checkpoint.write(folder, {"a": torch.full((3,), float(value))}, {"step": value})


def _files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_reads_what_was_written_and_keeps_two(tmp_path, told):
    _write(tmp_path, 1, 2, 3)
    tensors, state = checkpoint.read(tmp_path, told.append)
    assert tensors["a"].tolist() == [3.0] * 3
    assert state == {"step": 3}
    assert told == []
    names = ("00000002.json", "00000002.safetensors", "00000003.json", "00000003.safetensors")
    assert _files(tmp_path) == [*names]


def test_an_empty_folder_has_none(tmp_path, told):
    assert checkpoint.read(tmp_path, told.append) is None
    assert checkpoint.read(tmp_path / "nowhere", told.append) is None


def _flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-5])


def _delete(path):
    path.unlink()


def _other_state(path):
    whole = json.loads(path.read_text())
    whole["state"]["step"] = 7
    path.write_text(json.dumps(whole))


@pytest.mark.parametrize(
    ("spoil", "suffix"),
    [
        (_flip, "safetensors"),
        (_truncate, "safetensors"),
        (_delete, "safetensors"),
        (_flip, "json"),
        (_truncate, "json"),
        (_delete, "json"),
        (_other_state, "json"),
    ],
)
def test_a_broken_one_falls_back_and_says_so(spoil, suffix, tmp_path, told):
    _write(tmp_path, 1, 2)
    spoil(tmp_path / f"00000002.{suffix}")
    _, state = checkpoint.read(tmp_path, told.append)
    assert state == {"step": 1}
    assert len(told) == 1
    assert "checkpoint 2" in told[0]
    # What is kept from now on is good, so that the next save cannot push out the only good one.
    assert _files(tmp_path) == ["00000001.json", "00000001.safetensors"]
    _write(tmp_path, 3)
    assert len(_files(tmp_path)) == 4


def test_two_broken_ones_are_none(tmp_path, told):
    _write(tmp_path, 1, 2)
    for path in tmp_path.iterdir():
        _truncate(path)
    assert checkpoint.read(tmp_path, told.append) is None
    assert len(told) == 2


@pytest.mark.parametrize("when", ["tensors", "json"])
def test_a_full_disk_leaves_nothing_half_written(when, tmp_path, told, monkeypatch):
    _write(tmp_path, 1, 2)
    before = _files(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if when == "tensors":

        def half(tensors, path):
            path.write_bytes(b"half")
            full()

        monkeypatch.setattr(checkpoint, "save_file", half)
    else:
        monkeypatch.setattr(checkpoint.json, "dumps", full)
    with pytest.raises(OSError, match="No space left"):
        _write(tmp_path, 3)
    monkeypatch.undo()
    assert _files(tmp_path) == before
    assert checkpoint.read(tmp_path, told.append)[1] == {"step": 2}


def test_a_disk_that_fails_costs_no_checkpoint(tmp_path, told, monkeypatch):
    checkpoint.write(tmp_path, {"weight": torch.ones(2)}, {"step": 1})
    before = sorted(path.name for path in tmp_path.iterdir())

    def failing(*args):
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(checkpoint, "sha256", failing)
    with pytest.raises(OSError, match="input/output error"):
        checkpoint.read(tmp_path, told.append)
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_whoever_may_read_a_file_there_may_read_a_checkpoint(tmp_path):
    _write(tmp_path, 1)
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    (tmp_path / "any").touch()
    assert modes == {(tmp_path / "any").stat().st_mode}


def test_an_optimiser_comes_back_to_the_bit():
    def stepped(count, optimizer, weight):
        for _ in range(count):
            optimizer.zero_grad()
            (weight.square().sum() * 0.3).backward()
            optimizer.step()

    weight = torch.nn.Parameter(torch.arange(3.0))
    adam = torch.optim.Adam([weight], lr=0.1)
    stepped(3, adam, weight)
    tensors, groups = checkpoint.optimizer_tensors(adam)
    tensors = {name: value.clone() for name, value in tensors.items()}
    other = torch.nn.Parameter(weight.detach().clone())
    fresh = torch.optim.Adam([other], lr=1.0)
    checkpoint.load_optimizer(fresh, tensors, json.loads(json.dumps(groups)))
    stepped(3, adam, weight)
    stepped(3, fresh, other)
    assert torch.equal(weight, other)


def test_the_random_state_comes_back():
    device = torch.device("cpu")
    state = {name: value.clone() for name, value in checkpoint.random_state(device).items()}
    drawn = torch.rand(3)
    checkpoint.load_random_state(state, device)
    assert torch.equal(torch.rand(3), drawn)
