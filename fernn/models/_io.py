"""Models on disk: safetensors, with the model's configuration inside. Nothing is unpickled."""

import json
import math
import operator
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

import fernn.flows
from fernn import _check
from fernn._files import written_whole
from fernn.flows import Flow
from fernn.groups import SE2
from fernn.models._classifier import CNN3D, Classifier
from fernn.models._forecaster import Forecaster
from fernn.models._sequence import SEQUENCES, SequenceForecaster
from fernn.models._wrapped import unwrapped

Model = Forecaster | SequenceForecaster | Classifier | CNN3D
MODELS: dict[str, type[Model]] = {
    "Forecaster": Forecaster,
    "SequenceForecaster": SequenceForecaster,
    "Classifier": Classifier,
    "CNN3D": CNN3D,
}
_OTHERWISE = (
    "Write it with safetensors.torch.save_model, and read that with fernn.load(path, into=model)."
)
_UNREADABLE = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)
_FLOWS = ("Translation", "Rotation", "RigidMotion")
_KEY = "fernn"
_MOST = 2**16
"""The largest count that is believed of a file, also of velocities, which are tabulated before any
shape can be compared: the whole torus of 256×256, a state of which has 2³² values a channel."""
_MOST_MIXED = 2**11
"""The same of velocities that mix, since every pair of them is tabulated: the torus of 45×45."""


def save(model: Model, path: str | Path) -> None:
    """Write a model's weights and configuration to one safetensors file, all or nothing."""
    if type(model) is not MODELS.get(type(model).__name__):
        raise TypeError(
            f"`model` must be one of {', '.join(MODELS)}, got {type(model).__name__}."
            + (
                unwrapped("model", model, tuple(MODELS.values()))
                or " For other modules use safetensors.torch.save_model."
            )
        )
    own = model.config.get("sequence")
    if isinstance(own, nn.Module):
        named = [name for name, made in SEQUENCES.items() if type(own) is made]
        hint = f' Built with sequence="{named[0]}" in its place it can be saved.' if named else ""
        raise TypeError(
            "`model` must be made of what a file can name, which no module passed as `sequence` "
            f"is, got one around a {type(own).__name__}.{hint} {_OTHERWISE}"
        )
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"`path` must be in a folder that exists, got {str(path)!r}.")
    if path.is_dir():
        raise IsADirectoryError(f"`path` must be a file, got the folder {str(path)!r}.")
    tensors = {name: value.detach() for name, value in model.state_dict().items()}
    metadata = _described(model, tensors)
    contiguous = {name: value.contiguous() for name, value in tensors.items()}
    with written_whole(path) as part:
        part.write_bytes(serialise(contiguous, metadata=metadata))


def load(path: str | Path, *, into: nn.Module | None = None) -> nn.Module:
    """The model in a file that `save` wrote, or its weights, loaded `into` a model of that shape.

    A model given keeps its own configuration: readout, frame and V are not the file's then, and a
    warning says where they differ. One that is made is in training mode, as any module is: call
    `eval()` before batch-norm matters.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(Forecaster(hidden_channels=4), folder + "/model.safetensors")
    ...     model = load(folder + "/model.safetensors")
    >>> model.config["hidden_channels"]
    4
    """
    path = Path(path)
    if not path.is_file():
        from fernn.models._pretrained import pretrained  # which needs `load`

        name = path.as_posix()
        hint = f" Its weights come with the package: fernn.load_pretrained({name!r})."
        raise FileNotFoundError(
            f"`path` must be a file that fernn.save wrote, got {str(path)!r}."
            + hint * (name in pretrained())
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    except SafetensorError as error:
        raise ValueError(
            f"`path` must be a safetensors file that fernn.save wrote, got {str(path)!r}: {error}."
        ) from None
    if into is not None:
        _check.kind("into", into, nn.Module, "Forecaster(flow=Translation(radius=2))")
    model = _made(metadata, len(tensors), path) if into is None else into
    _match(model, tensors, metadata, path)
    if into is not None:
        _compare(into, metadata, path)
    # A model made here has no memory yet; it takes the tensors as they are, in their precision.
    model.load_state_dict(tensors, assign=into is None)
    return model


def _described(model: Model, tensors: dict[str, Tensor]) -> dict[str, str]:
    """The metadata of a file with these tensors, of which `load` makes the model again."""
    try:
        about = {"model": type(model).__name__, "config": _encode(model.config)}
        metadata = {_KEY: json.dumps(about)}
        lines = _differences(
            _build(metadata, len(tensors)), tensors, made="its config", held="the model"
        )
    except _UNREADABLE as error:
        lines = [f"{type(error).__name__}: {error}"]
    if lines:
        raise ValueError(
            "`model` must be what its `config` makes, for a file says no more, got a "
            f"{type(model).__name__} that differs:\n  " + "\n  ".join(lines) + f"\n{_OTHERWISE}"
        )
    return metadata


def _build(metadata: dict[str, str], tensors: int) -> nn.Module:
    """The model that a file says it holds, without memory: what it says is not checked yet."""
    about = json.loads(metadata[_KEY])
    made = MODELS[about["model"]]
    config: dict[str, Any] = {name: _decode(value) for name, value in about["config"].items()}
    _believed(config.get("decoder_layers"), most=tensors, what="`decoder_layers`")
    _check_mixed(config)
    with torch.device("meta"):
        return made(**config)


def _made(metadata: dict[str, str], tensors: int, path: Path) -> nn.Module:
    try:
        return _build(metadata, tensors)
    except _UNREADABLE as error:
        raise ValueError(
            f"`path` must hold a model's configuration, got {str(path)!r} without a readable one "
            f"({type(error).__name__}: {error}). Build the model yourself and pass it as "
            "`into` to fernn.load."
        ) from None


def _differences(
    model: nn.Module, found: dict[str, Tensor], *, made: str = "the model", held: str = "the file"
) -> list[str]:
    """Every difference of name and shape, not only the first, between what was made and is held."""
    have = model.state_dict()
    lines = [f"{name}: missing in {held}" for name in have.keys() - found.keys()]
    lines += [f"{name}: not in {made}" for name in found.keys() - have.keys()]
    lines += [
        f"{name}: {tuple(found[name].shape)} in {held}, {tuple(have[name].shape)} in {made}"
        for name in have.keys() & found.keys()
        if have[name].shape != found[name].shape
    ]
    return sorted(lines)


def _match(
    model: nn.Module, found: dict[str, Tensor], metadata: dict[str, str], path: Path
) -> None:
    lines = _differences(model, found)
    if lines and (hint := unwrapped("into", model, tuple(MODELS.values()))):
        raise TypeError(f"`into` must be the model itself, got a {type(model).__name__}.{hint}")
    if lines and f'"model": "{type(model).__name__}"' not in metadata.get(_KEY, ""):
        lines.insert(0, f"(the model is a {type(model).__name__}, the file was written by another)")
    if lines:
        raise ValueError(
            f"`path` must hold weights of the model's shape, got {str(path)!r}, which differs:\n  "
            + "\n  ".join(lines)
        )


def _compare(model: nn.Module, metadata: dict[str, str], path: Path) -> None:
    """Warn where weights of one configuration go into a model of another.

    The weights may fit and mean something else: a readout, a frame or a V has no parameters.
    """
    try:
        about = json.loads(metadata[_KEY])["config"]
        own = json.loads(json.dumps(_encode(model.config)))
        keys = [k for k in own if k != "backend" and about.get(k, own[k]) != own[k]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # a file or a model without a configuration
    if keys:
        lines = (f"{k}: {about[k]} in the file, {own[k]} in the model" for k in keys)
        warnings.warn(
            f"`into` keeps its own configuration, which differs from that in {str(path)!r}:\n  "
            + "\n  ".join(lines)
            + "\nWithout `into`, `load` makes the file's own model.",
            stacklevel=3,
        )


def _encode(value: object) -> object:
    """A configuration as JSON: values of this library become {name: arguments}."""
    if isinstance(value, Flow):
        return {type(value).__name__: _encode(value.config())}
    if isinstance(value, SE2):
        return {"SE2": value.orientations}
    if isinstance(value, nn.Module):  # one's own, of which a file can say no more
        return type(value).__name__
    if isinstance(value, dict):
        return {name: _encode(item) for name, item in value.items()}
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        return operator.index(value)  # one of numpy's, which JSON does not take
    return value


def _decode(value: Any) -> Any:
    if not isinstance(value, dict):
        return _believed(value)
    ((name, arguments),) = value.items()
    if name == "SE2":
        return SE2(_decode(arguments))
    if name not in _FLOWS:
        raise ValueError(f"a flow must be one of {', '.join(_FLOWS)}, got {name}")
    decoded = {key: _decode(item) for key, item in arguments.items()}
    _believed(_velocities(**decoded))
    return getattr(fernn.flows, name)(**decoded)


def _velocities(
    radius: int = 0,
    dim: int = 2,
    closed: Sequence[int] = (),
    count: int = 0,
    velocities: Sequence[object] = (),
    **_: object,
) -> int:
    """How many velocities a flow makes of its arguments."""
    made = math.prod([2 * radius + 1] * min(dim, 3)), math.prod(closed), 2 * count + 1
    return max(*made, len(velocities))


def _check_mixed(config: dict[str, Any]) -> None:
    """Raise where more velocities mix than a file is believed to have."""
    if config.get("mixing") is not None:
        _believed(len(config["flow"]), most=_MOST_MIXED, what="the velocities that mix")


def _believed(value: Any, most: int = _MOST, what: str = "a count") -> Any:
    if isinstance(value, int) and value > most:
        raise ValueError(f"{what} must be at most {most}, got {value}")
    return value
