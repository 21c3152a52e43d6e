"""Checkpoints: safetensors and JSON, whole or not there, and the one before is kept.

Number n is two files: `00000012.safetensors`, and `00000012.json`, which holds everything that is
no tensor and the digests of both. The JSON is written last, so a checkpoint without it never was.
Nothing is unpickled.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor
from torch.optim import Optimizer

from fernn._files import sha256, written_whole

KEPT = 2
Say = Callable[[str], None]


def write(folder: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> int:
    """Write the next checkpoint, then remove those before the previous one; returns its number.

    Where it cannot be written it raises OSError, and the checkpoints are as they were.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = max(_numbers(folder), default=0) + 1
    path = folder / f"{number:08d}.safetensors"
    try:
        with written_whole(path) as part:
            save_file({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, part)
            digest = sha256(part)
        text = json.dumps(state)
        whole = {"tensors_sha256": digest, "state_sha256": _digest_text(text), "state": state}
        with written_whole(path.with_suffix(".json")) as part:
            part.write_text(json.dumps(whole), encoding="utf-8")
    except OSError:
        _remove(folder, number)
        raise
    for old in sorted(_numbers(folder))[:-KEPT]:
        _remove(folder, old)
    return number


def save_file(tensors: Mapping[str, Tensor], path: Path) -> None:
    """As an ordinary file: one of safetensors' own is private, and its errors have no number."""
    path.write_bytes(serialise(dict(tensors)))


def read(folder: Path, say: Say) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """The newest checkpoint that is whole: its tensors and its state, or None where there is none.

    `say` is told of every one that is not whole; those are removed, so that what is kept is good.
    One that cannot be read for another reason, such as a failing disk, raises and stays.
    """
    for number in sorted(_numbers(folder), reverse=True):
        try:
            return _read(folder / f"{number:08d}.safetensors")
        except (FileNotFoundError, ValueError, KeyError, TypeError, SafetensorError) as error:
            say(f"checkpoint {number} in {folder} cannot be used ({error}); trying the one before")
            _remove(folder, number)
    return None


def newest_state(folder: Path) -> dict[str, Any] | None:
    """What the newest checkpoint holds beside its tensors; only a look, nothing is removed."""
    for number in sorted(_numbers(folder), reverse=True):
        with suppress(OSError, ValueError, KeyError, TypeError):
            state: dict[str, Any] = _whole(folder / f"{number:08d}.json")["state"]
            return state
    return None


def optimizer_tensors(optimizer: Optimizer) -> tuple[dict[str, Tensor], list[dict[str, Any]]]:
    """An optimiser's state as tensors by name, and the settings of its groups as JSON."""
    state = optimizer.state_dict()
    tensors = {
        f"optimizer/{index}/{name}": value
        for index, values in state["state"].items()
        for name, value in values.items()
    }
    return tensors, state["param_groups"]


def load_optimizer(
    optimizer: Optimizer, tensors: Mapping[str, Tensor], groups: list[dict[str, Any]]
) -> None:
    """Put back what `optimizer_tensors` gave, but for how this device takes a step."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in part(tensors, "optimizer/").items():
        index, _, name = key.partition("/")
        state.setdefault(int(index), {})[name] = value
    # JSON has no tuples, and Adam's betas are one.
    plain = [{k: tuple(v) if k == "betas" else v for k, v in group.items()} for group in groups]
    for group, own in zip(plain, optimizer.param_groups, strict=True):
        group["fused"] = own["fused"]
    optimizer.load_state_dict({"state": state, "param_groups": plain})


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def random_state(device: torch.device) -> dict[str, Tensor]:
    """The state of the global generators that a run draws from."""
    states = {"random/cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["random/cuda"] = torch.cuda.get_rng_state(device)
    return states


def load_random_state(tensors: Mapping[str, Tensor], device: torch.device) -> None:
    """Put back what `random_state` gave; a run that moved to a GPU has none for it."""
    torch.set_rng_state(tensors["random/cpu"])
    if device.type == "cuda" and "random/cuda" in tensors:
        torch.cuda.set_rng_state(tensors["random/cuda"], device)


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    whole = _whole(path.with_suffix(".json"))
    if sha256(path) != whole["tensors_sha256"]:
        raise ValueError("its tensors are not what was written")
    return load_file(path), whole["state"]


def _whole(path: Path) -> dict[str, Any]:
    whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if _digest_text(json.dumps(whole["state"])) != whole["state_sha256"]:
        raise ValueError("its JSON is not what was written")
    return whole


def _numbers(folder: Path) -> set[int]:
    files = [*folder.glob("*.json"), *folder.glob("*.safetensors")]
    return {int(file.stem) for file in files if file.stem.isdecimal()}


def _remove(folder: Path, number: int) -> None:
    for suffix in ("json", "safetensors"):  # the JSON first: without it the rest counts for nothing
        (folder / f"{number:08d}.{suffix}").unlink(missing_ok=True)


def _digest_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
