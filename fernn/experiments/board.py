"""A run's curve for TensorBoard, which is convenience: if it cannot be written the run goes on."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


class Board:
    """Scalars by step in a folder; on the first failure it says so and is silent from then on."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say
        self._writer: Any = None
        self._failed = False

    def add(self, line: dict[str, Any]) -> None:
        """The numbers of one validation."""
        try:
            if self._writer is None and not self._failed:
                from torch.utils.tensorboard import SummaryWriter  # fails where it is missing

                # What a killed run wrote beyond the checkpoint that is resumed does not count.
                self._writer = SummaryWriter(str(self._folder), purge_step=line["step"])
            if self._writer is not None:
                for name in ("train_loss", "val_loss", "lr"):
                    if line[name] is not None:  # a loss that is not finite
                        self._writer.add_scalar(name, line[name], line["step"])
                self._writer.flush()
        except (OSError, ImportError) as error:
            self._failed, self._writer = True, None
            self._say(f"cannot write {self._folder}: {error}. The curve is in curve.jsonl alone.")

    def close(self) -> None:
        """Give back the thread that writes; the last lines are written already."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()
