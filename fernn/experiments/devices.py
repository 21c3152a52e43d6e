"""Where models run, as a command line names it."""

import torch

from fernn import _check

DEVICES = ("auto", "cpu", "cuda")


def resolved(device: str, count: int = 1) -> str:
    """ "cpu" or "cuda": "auto" takes a GPU where there is one, and what is not there raises."""
    _check.choice("device", device, DEVICES)
    available = torch.cuda.device_count()
    if device == "auto":
        return "cuda" if available else "cpu"
    if device == "cuda" and available == 0:
        raise ValueError('`device` must be "cpu" or "auto" here, got "cuda": there is no GPU.')
    if device == "cuda" and available < count:
        raise ValueError(f"`devices` must be at most the {available} GPUs here, got {count}.")
    return device
