"""Where models run and how exactly, as a command line names it."""

import torch

from fernn import _check

DEVICES = ("auto", "cpu", "cuda")
PRECISIONS = ("32-true", "tf32", "bf16-mixed", "16-mixed", "64-true")


def resolved(device: str, count: int = 1, precision: str = "32-true") -> str:
    """ "cpu" or "cuda": "auto" takes a GPU where there is one, and what is not there raises."""
    _check.choice("device", device, DEVICES)
    _check.choice("precision", precision, PRECISIONS)
    available = torch.cuda.device_count()
    if device == "auto":
        device = "cuda" if available else "cpu"
    if device == "cpu" and precision == "16-mixed":
        raise ValueError(
            '`precision` must not be "16-mixed" on a CPU, which has no float16. Use "bf16-mixed".'
        )
    if device == "cuda" and available == 0:
        raise ValueError('`device` must be "cpu" or "auto" here, got "cuda": there is no GPU.')
    if device == "cuda" and available < count:
        raise ValueError(f"`devices` must be at most the {available} GPUs here, got {count}.")
    return device


def described(device: torch.device, processes: int, precision: str) -> str:
    """Where a run is trained and how exactly, in a few words.

    >>> described(torch.device("cpu"), 2, "32-true")
    'on cpu, 2 processes, in 32-true'
    """
    name = f" ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else ""
    shared = f", {processes} processes" if processes > 1 else ""
    return f"on {device}{name}{shared}, in {precision}"
