"""The state of a run: weights, optimiser, best weights, random state and how far it is."""

import dataclasses
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from fernn.experiments import checkpoint, records


@dataclass
class Progress:
    """How far a run is: everything of its state that is no tensor."""

    source: str = ""
    """What the sequences are made from."""
    digest: str | None = None
    """The SHA-256 of clips, which may share a name; digits are MNIST's or the package's."""
    precision: str = "32-true"
    device: str = "cpu"
    """Where it is trained; it may be another one after a checkpoint, since weights are portable."""
    commits: list[str] = field(default_factory=list)
    """What it was trained with, as `records.commit` writes them, in order."""
    step: int = 0
    epoch: int = 0
    batch: int = 0
    loss_sum: float = 0.0
    """Of the steps of this epoch."""
    sequences: int = 0
    seconds: float = 0.0
    train_seconds: float = 0.0
    micro_batch: int = 0
    peak_memory: int = 0
    best_epoch: int | None = None
    best_loss: float | None = None
    curve: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class State:
    """What a checkpoint holds, and what a run goes on from."""

    module: nn.Module
    optimizer: Optimizer
    scaler: GradScaler | None
    device: torch.device
    progress: Progress
    best: dict[str, Tensor] = field(default_factory=dict)
    """The weights of the best validation, on the CPU."""

    def better(self, val_loss: float) -> bool:
        """Whether a validation is the best so far; if it is, its weights are kept."""
        progress = self.progress
        known = math.inf if progress.best_loss is None else progress.best_loss
        if not val_loss < known:  # nor is a loss that is not a number
            return False
        progress.best_epoch, progress.best_loss = progress.epoch, val_loss
        self.best = {
            name: value.detach().cpu().clone() for name, value in self.module.state_dict().items()
        }
        return True

    def finite(self) -> bool:
        """Whether every weight and every statistic is a number."""
        floating = (t for t in self.module.state_dict().values() if t.is_floating_point())
        return all(bool(t.isfinite().all()) for t in floating)

    def write(self, folder: Path) -> None:
        """Write a checkpoint."""
        tensors = {f"model/{name}": value for name, value in self.module.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.items()}
        moments, groups = checkpoint.optimizer_tensors(self.optimizer)
        tensors |= moments | checkpoint.random_state(self.device)
        scale = None if self.scaler is None else self.scaler.state_dict()
        plain = dataclasses.asdict(self.progress) | {"groups": groups, "scaler": scale}
        checkpoint.write(folder, tensors, plain)

    def take(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        A micro-batch that is smaller than the checkpoint's stays: this device may be a smaller one.
        """
        earlier = plain.get("commits", [records.commit({})])  # old checkpoints do not say
        commits = [*earlier, *(c for c in self.progress.commits if [c] != earlier[-1:])]
        plain = {**plain, "device": self.progress.device, "commits": commits}
        self.module.load_state_dict(checkpoint.part(tensors, "model/"))
        self.best = checkpoint.part(tensors, "best/")
        checkpoint.load_optimizer(self.optimizer, tensors, plain.pop("groups"))
        checkpoint.load_random_state(tensors, self.device)
        scale = plain.pop("scaler")
        if self.scaler is not None and scale is not None:
            self.scaler.load_state_dict(scale)
        plain["micro_batch"] = min(plain["micro_batch"], self.progress.micro_batch)
        for name, value in plain.items():
            setattr(self.progress, name, value)
