"""save and load: one safetensors file with the configuration inside, all or nothing."""

import json
import os
import pickle
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fernn import SE2, Classifier, FlowRNN, Forecaster, RigidMotion, Rotation, Translation
from fernn.groups import _steerable
from fernn.models import CNN3D, load, save

COUNT = np.int64(4)
"""A count as arrays have it, which JSON does not."""
FLOWS = [
    None,
    Translation(radius=1),
    Translation(velocities=[(0, -3), (0, 0), (0, 3)]),
    Translation(closed=(6, 6)),
    Rotation(count=1),
    Rotation(velocities=[0, 90, 180, 270], group=SE2(4)),
    RigidMotion([(0, 0, 0), (0, 0.5, 1 / 3)]),
]
MODELS = {
    **{f"Forecaster, {flow}": {"kind": Forecaster, "flow": flow} for flow in FLOWS},
    "Forecaster, 1-D": {"kind": Forecaster, "flow": Translation(radius=1, dim=1)},
    "Forecaster, 3-D": {"kind": Forecaster, "flow": Translation(radius=1, dim=3)},
    "Forecaster, options": {
        "kind": Forecaster,
        "flow": Translation(radius=1),
        "in_channels": 2,
        "kernel_size": 5,
        "decoder_layers": 2,
        "readout": "published",
        "mixing": 1,
        "backend": "reference",
    },
    "Forecaster, mixing": {"kind": Forecaster, "flow": Translation(radius=1), "mixing": "full"},
    "Forecaster, co-moving": {"kind": Forecaster, "flow": Translation(1), "frame": "comoving"},
    "Classifier": {"kind": Classifier, "flow": Translation(radius=1), "norm": True, "classes": 3},
    "Classifier, learned": {"kind": Classifier, "flow": Translation(1), "transport": "learned"},
    "CNN3D": {"kind": CNN3D, "classes": 4, "in_channels": 2},
    "Forecaster, numpy": {
        "kind": Forecaster,
        "flow": Rotation(count=np.int64(1), group=SE2(COUNT), degrees=90),
        "in_channels": COUNT,
        "hidden_channels": COUNT,
        "kernel_size": np.int64(3),
        "decoder_layers": COUNT,
    },
    "Classifier, numpy": {"kind": Classifier, "hidden_channels": COUNT, "classes": COUNT},
}


def build(kind, **options):
    if kind is not CNN3D:
        options = {"hidden_channels": 4} | options
    model = kind(**options)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2.0)
    return model


def sample(model):
    dim = 2 if isinstance(model, CNN3D) else model.flow.group.dim
    return torch.randn(2, 3, model.config["in_channels"], *(6,) * dim)


@pytest.mark.parametrize("options", MODELS.values(), ids=MODELS)
def test_save_and_load_give_the_model_back(options, tmp_path):
    model = build(**options).eval()
    save(model, tmp_path / "model.safetensors")
    twin = load(tmp_path / "model.safetensors").eval()
    assert type(twin) is type(model)
    assert twin.config == model.config
    state = model.state_dict()
    assert list(twin.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in twin.state_dict().items())
    x = sample(model)
    assert torch.equal(twin(x), model(x))


def test_save_writes_the_configuration_as_plain_json(tmp_path):
    flow = Rotation(count=1, group=SE2(36))
    save(Forecaster(flow=flow, hidden_channels=1), str(tmp_path / "model"))
    with safe_open(tmp_path / "model", "pt") as file:
        about = json.loads(file.metadata()["fernn"])
    assert about["model"] == "Forecaster"
    assert about["config"]["hidden_channels"] == 1
    assert about["config"]["flow"] == {
        "Rotation": {"count": 1, "degrees": 10.0, "group": {"SE2": 36}}
    }


def test_load_puts_weights_into_a_model_of_the_same_shape(tmp_path):
    trained = Forecaster(flow=Translation(radius=1), hidden_channels=4)
    save(trained, tmp_path / "model")
    wider = Forecaster(flow=Translation(radius=2), hidden_channels=4)
    with pytest.warns(UserWarning, match=r"own configuration.*\n  flow: .*1.* in the file, .*2"):
        assert load(tmp_path / "model", into=wider) is wider
    for name, value in wider.state_dict().items():
        assert torch.equal(value, trained.state_dict()[name])


def test_load_into_the_same_configuration_is_silent(tmp_path):
    trained = Forecaster(flow=Translation(radius=1), hidden_channels=4)
    save(trained, tmp_path / "model")
    twin = Forecaster(flow=Translation(radius=1), hidden_channels=4, backend="reference")
    load(tmp_path / "model", into=twin)  # warnings are errors here; a backend changes nothing
    assert torch.equal(twin.decoder[0].weight, trained.decoder[0].weight)


def test_load_says_everything_that_differs(tmp_path):
    save(Forecaster(hidden_channels=4, decoder_layers=1), tmp_path / "model")
    before = (other := Forecaster(hidden_channels=6, decoder_layers=2)).state_dict()
    before = {name: value.clone() for name, value in before.items()}
    with pytest.raises(ValueError, match="weights of the model's shape") as caught:
        load(tmp_path / "model", into=other)
    for line in (
        r"decoder.0.weight: (4, 4, 3, 3) in the file, (6, 6, 3, 3) in the model",
        r"decoder.4.weight: missing in the file",
        r"rnn.layers.0.recurrent.weight: (4, 4, 3, 3) in the file, (6, 6, 3, 3) in the model",
    ):
        assert line in str(caught.value)
    assert all(torch.equal(value, before[name]) for name, value in other.state_dict().items())
    with pytest.raises(ValueError, match=r"rnn\.layers\.0\.input\.weight: not in the model"):
        load(tmp_path / "model", into=CNN3D())


def test_save_gives_the_file_the_mode_of_any_new_file(tmp_path):
    for mask in (0o022, 0o077, 0o002):
        old = os.umask(mask)
        try:
            save(CNN3D(), tmp_path / "model")
            assert os.umask(mask) == mask
        finally:
            os.umask(old)
        assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("failure", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["Path.write_bytes", "os.replace"])
def test_save_that_fails_leaves_the_old_file_and_no_other(where, failure, tmp_path, monkeypatch):
    path = tmp_path / "model.safetensors"
    save(CNN3D(classes=3), path)
    old = path.read_bytes()

    def fail(*arguments, **_):
        if where == "Path.write_bytes":
            with open(arguments[0], "wb") as file:
                file.write(b"half a file")
        raise failure("stopped")

    target, name = (os, "replace") if where == "os.replace" else (Path, "write_bytes")
    with monkeypatch.context() as patched:
        patched.setattr(target, name, fail)
        with pytest.raises(failure, match="stopped"):
            save(CNN3D(classes=4), path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]
    save(CNN3D(classes=4), path)
    assert load(path).config["classes"] == 4
    assert list(tmp_path.iterdir()) == [path]


def test_save_and_load_do_not_pickle(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("pickle was used")

    for target, name in (
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "dump"),
        (pickle, "dumps"),
        (pickle, "Unpickler"),
        (torch, "load"),
        (torch, "save"),
    ):
        monkeypatch.setattr(target, name, refuse)
    save(Forecaster(hidden_channels=4), tmp_path / "model")
    assert isinstance(load(tmp_path / "model"), Forecaster)


def test_save_takes_weights_that_share_memory_or_are_strided(tmp_path):
    model = Forecaster(hidden_channels=4, decoder_layers=2)
    model.decoder[2].weight.data = model.decoder[2].weight.data.transpose(0, 1)
    assert not model.decoder[2].weight.is_contiguous()
    save(model, tmp_path / "model")
    assert torch.equal(load(tmp_path / "model").decoder[2].weight, model.decoder[2].weight)


@pytest.mark.parametrize(
    "content",
    [
        lambda whole: b"",
        lambda whole: b"\x00" * 7,
        lambda whole: whole[:100],
        lambda whole: whole[:-1],
        lambda whole: whole[: len(whole) // 2],
        lambda whole: bytes(range(256)) * 8,
        lambda whole: b"PK\x03\x04" + whole,
        lambda whole: whole[:8] + b"x" + whole[9:],
    ],
)
def test_load_refuses_a_file_that_is_damaged(content, tmp_path):
    path = tmp_path / "model"
    save(CNN3D(), path)
    path.write_bytes(content(path.read_bytes()))
    with pytest.raises(
        ValueError, match=r"`path` must be a safetensors file that fernn.save wrote, got"
    ):
        load(path)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"other": "x"},
        {"fernn": "not json"},
        {"fernn": "[1]"},
        {"fernn": '{"model": "Unknown", "config": {}}'},
        {"fernn": '{"model": "CNN3D"}'},
        {"fernn": '{"model": "Forecaster", "config": {"flow": {"os": {}}}}'},
        {"fernn": '{"model": "Forecaster", "config": {"flow": {"Flow": {}}}}'},
        {"fernn": '{"model": "Forecaster", "config": {"flow": {"Translation": {"radius": -1}}}}'},
    ],
)
def test_load_refuses_a_file_without_a_readable_configuration(metadata, tmp_path):
    save_file(CNN3D().state_dict(), tmp_path / "model", metadata=metadata)
    with pytest.raises(ValueError, match=r"must hold a model's configuration.*pass it as `into`"):
        load(tmp_path / "model")
    assert isinstance(load(tmp_path / "model", into=CNN3D()), CNN3D)


@pytest.mark.parametrize(
    "about",
    [
        '{"model": "CNN3D", "config": []}',
        '{"model": "Forecaster", "config": {"flow": {"Translation": 3}}}',
        '{"model": "CNN3D", "config": {"depth": 3}}',
        '{"model": "CNN3D", "config": {"classes": -3}}',
    ],
)
def test_load_refuses_a_configuration_that_makes_no_model(about, tmp_path):
    save_file(CNN3D().state_dict(), tmp_path / "model", metadata={"fernn": about})
    with pytest.raises(ValueError, match=r"must hold a model's configuration.*pass it as `into`"):
        load(tmp_path / "model")


def test_load_makes_no_kernel_that_a_file_only_claims(tmp_path, monkeypatch):
    claimed = {"Rotation": {"velocities": [0.0, 90.0], "group": {"SE2": 36}}}
    config = {"flow": claimed, "hidden_channels": 1, "kernel_size": 4001, "frame": "comoving"}
    about = json.dumps({"model": "Forecaster", "config": config})
    save_file({"x": torch.zeros(1)}, tmp_path / "model", metadata={"fernn": about})
    monkeypatch.setattr(_steerable, "_make", pytest.fail)  # gigabytes
    with pytest.raises(ValueError, match=r"`path` must hold weights of the model's shape"):
        load(tmp_path / "model")


@pytest.mark.parametrize("dtype", [torch.double, torch.bfloat16])
def test_save_and_load_keep_the_precision(dtype, tmp_path):
    model = Forecaster(hidden_channels=4).to(dtype)
    save(model, tmp_path / "model")
    twin = load(tmp_path / "model")
    state = model.state_dict()
    assert all(value.dtype == dtype for value in twin.state_dict().values())
    assert all(torch.equal(value, state[name]) for name, value in twin.state_dict().items())


def test_load_refuses_a_path_without_a_file(tmp_path):
    for path in (tmp_path / "nothing", tmp_path):
        with pytest.raises(
            FileNotFoundError, match=r"`path` must be a file that fernn\.save wrote"
        ):
            load(path)


def test_save_refuses_what_is_not_one_of_its_models(tmp_path):
    for model in (torch.nn.Linear(1, 1), FlowRNN(1, 2, flow=Translation(radius=1))):
        with pytest.raises(
            TypeError, match=r"`model` must be one of Forecaster, SequenceForecaster, Cla"
        ):
            save(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_save_into_a_folder_that_is_missing_says_so(tmp_path):
    with pytest.raises(FileNotFoundError, match="missing"):
        save(CNN3D(), tmp_path / "missing" / "model")
