"""The training loop: steps, validations, checkpoints, and what to do when one of them fails.

A run is a pure function of recipe and seed: batches are numbered, the learning rate is a function
of the step, and everything else that a step reads is in the checkpoint. So a run that was killed
ends where an uninterrupted one does, to the bit on a CPU.
"""

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fernn.data import Videos
from fernn.experiments import checkpoint, records, runs
from fernn.experiments.ahead import Told, made_aside
from fernn.experiments.board import Board
from fernn.experiments.fabric import Fabric, of_the_first
from fernn.experiments.progress import Report
from fernn.experiments.recipes import Recipe
from fernn.experiments.state import Progress, State
from fernn.experiments.step import Stepper, adam
from fernn.models import save

RUNAWAY = 10
"""A training loss this many times that of the best epoch before is worth a word."""


class DivergedError(ValueError):
    """The loss is not a number any more."""


class Interrupted(Exception):  # noqa: N818  # it is a wish, not an error
    """Somebody asked the run to stop; its state is saved."""


class Loop:
    """One run on one rank: `run` takes it to the end, from wherever its folder says that it is."""

    def __init__(
        self,
        fabric: Fabric,
        recipe: Recipe,
        folder: Path,
        *,
        train: Videos,
        val: Videos,
        source: str,
        digest: str | None,
        precision: str,
        environment: dict[str, Any],
        report: Report,
        micro_batch: int | None,
        save_minutes: float,
        stop: Callable[[], bool],
    ) -> None:
        self.fabric, self.recipe, self.folder, self.report = fabric, recipe, folder, report
        self.train, self.val, self.stop, self.environment = train, val, stop, environment
        world, batch = fabric.world_size, recipe.training.batch_size
        if batch % world:
            raise ValueError(
                f"`training.batch_size` must be a multiple of the {world} processes, got {batch}."
            )
        self.local_batch = batch // world
        self.batches = len(train) // batch
        if self.batches == 0:
            raise ValueError(
                f"`training.batch_size` must be at most the {len(train)} sequences of an epoch, "
                f"got {batch}."
            )
        self.steps = self.batches * recipe.training.epochs
        built = recipe.build()
        if world > 1 and any(
            isinstance(m, nn.modules.batchnorm._BatchNorm) for m in built.modules()
        ):
            if fabric.device.type != "cuda":
                raise ValueError(
                    "`--devices` must be 1 for a model with batch-norm on a CPU: its statistics "
                    "are synchronised between GPUs alone."
                )
            built = nn.SyncBatchNorm.convert_sync_batchnorm(built)
        optimizer = adam(fabric, built.parameters(), recipe.training.learning_rate)
        self.model, stepped = fabric.setup(built, optimizer)
        self.module: nn.Module = self.model.module
        micro = min(micro_batch or batch, self.local_batch)
        self.progress = Progress(
            micro_batch=micro,
            source=source,
            digest=digest,
            precision=precision,
            device=fabric.device.type,
            commits=[records.commit(environment)],
        )
        self.stepper = Stepper(fabric, recipe, self.model, stepped, self.progress, report)
        self.state = State(
            self.module, optimizer, self.stepper.scaler, fabric.device, self.progress
        )
        self.save_seconds, self._saved = 60 * save_minutes, time.monotonic()
        self._failing: dict[str, object] = {}  # what cannot be written at the moment, and why
        self._board = Board(folder / runs.BOARD, report.say) if fabric.is_global_zero else None

    def run(self) -> None:
        """Train to the last epoch, or raise `DivergedError` or `Interrupted`."""
        if self.fabric.device.type == "cuda":  # the peak of this run, not of one before it
            torch.cuda.reset_peak_memory_stats(self.fabric.device)
        self._resume()
        progress, epochs = self.progress, self.recipe.training.epochs
        self.report.begin(f"{self.recipe.name} {self.recipe.scale}", progress.step, self.steps)
        self._clock = time.monotonic()
        try:
            while progress.epoch < epochs:
                self._epoch()
                self._end_of_epoch()
                if sum(self._reduced(torch.tensor([self.stop()], dtype=torch.float64), "sum")):
                    raise Interrupted
        finally:
            if self._board is not None:
                self._board.close()

    def _epoch(self) -> None:
        progress = self.progress
        self.model.train()
        batches = self.train.batches(
            self.local_batch,
            progress.epoch,
            shuffle=True,
            drop_last=True,
            rank=self.fabric.global_rank,
            world_size=self.fabric.world_size,
            start=progress.batch,
        )
        self._begun, stop = time.monotonic(), False
        waiting: deque[Told] = deque()
        for batch in made_aside(batches, self.fabric.device):
            rate = self.recipe.training.rate(progress.step + len(waiting), self.steps)
            waiting.append(self.stepper.take(batch, rate, self.stop()))
            if len(waiting) > self.stepper.ahead:
                stop = self._settle(waiting.popleft())
            if stop or time.monotonic() - self._saved >= self.save_seconds:
                while waiting:
                    stop |= self._settle(waiting.popleft())
                self._save_unless_last(stop)
        while waiting:
            stop |= self._settle(waiting.popleft())
        self._save_unless_last(stop)

    def _save_unless_last(self, stop: bool) -> None:
        """Save, and stop where that is wished; the end of an epoch saves by itself."""
        if stop:
            self._failing.clear()  # the last chance to say what is not saved
        if stop or self.progress.batch < self.batches:
            self._save()
            self._begun = time.monotonic()
        if stop:
            raise Interrupted

    def _settle(self, told: Told) -> bool:
        """A step is done: keep its numbers; whether somebody wishes to stop."""
        progress = self.progress
        loss, norm, stop = told.read()
        if not math.isfinite(loss) or not math.isfinite(norm):
            self._diverged("loss" if not math.isfinite(loss) else "gradient")
        if self.stepper.overflows:
            self._diverged("gradient in float16")
        now = time.monotonic()
        progress.train_seconds += now - self._begun
        self._begun = now
        progress.step += 1
        progress.batch += 1
        progress.loss_sum += loss
        progress.sequences += self.recipe.training.batch_size
        self.report.step(progress.step, loss, progress.sequences / progress.train_seconds)
        # Told of before the step, for all ranks alike; one alone need not take another to know.
        return stop > 0 or (self.fabric.world_size == 1 and self.stop())

    def _reduced(self, values: Tensor, how: str) -> list[float]:
        """A few numbers over all ranks."""
        reduced = self.fabric.all_reduce(values, reduce_op=how)
        assert isinstance(reduced, Tensor)
        return [float(value) for value in reduced.tolist()]

    def _diverged(self, what: str) -> None:
        step, rate = self.progress.step + 1, self.recipe.training.learning_rate
        self.stepper.forget()
        # Forward passes have moved the statistics of batch-norm on: then the last save stands.
        if not any(True for _ in self.module.buffers()) and self.state.finite():
            self._save()
        saved = self.folder / runs.CHECKPOINTS
        kept = f"its last good state is in {saved}" if saved.exists() else "nothing was saved yet"
        raise DivergedError(
            f"the {what} of step {step} is not finite; the run stopped before it and {kept}. "
            f"Lower `training.learning_rate` ({rate:g} now) or set `training.clip`, or use a wider "
            "--precision in another --out."
        )

    def _validate(self) -> float:
        """The mean loss over the validation split, at epoch 0 of it: always the same sequences."""
        self.model.eval()
        total = torch.zeros(2, dtype=torch.float64, device=self.fabric.device)
        batches = self.val.batches(
            self.local_batch, 0, rank=self.fabric.global_rank, world_size=self.fabric.world_size
        )
        for batch in made_aside(batches, self.fabric.device):
            total[0] += self.stepper.loss(batch)
            total[1] += len(batch.frames)
        loss_sum, sequences = self._reduced(total, "sum")
        return loss_sum / sequences

    def _end_of_epoch(self) -> None:
        progress = self.progress
        val_loss = self.stepper.fitting(self._validate)
        progress.epoch += 1
        improved = self.state.better(val_loss)
        self._tick()
        train_loss = progress.loss_sum / self.batches
        before = min((past["train_loss"] for past in progress.curve), default=math.inf)
        line = {
            "step": progress.step,
            "epoch": progress.epoch,
            "sequences": progress.sequences,
            "seconds": progress.seconds,
            "train_loss": train_loss,
            "val_loss": val_loss if math.isfinite(val_loss) else None,
            "lr": self.recipe.training.rate(progress.step - 1, self.steps),
        }
        progress.curve.append(line)
        progress.batch, progress.loss_sum = 0, 0.0
        if self._board is not None:
            self._board.add(line)
            self._keep(self._write_curve)
        self.report.validated(line, self.recipe.training.epochs, best=improved)
        if train_loss > RUNAWAY * before:
            self.report.say(
                f"the training loss was {before:.1e} and is {train_loss:.1e} now: such a "
                "run seldom recovers. Set `training.clip` or lower `training.learning_rate`."
            )
        self._save(best=improved)

    def _save(self, *, best: bool = False) -> None:
        """A checkpoint, from rank 0. What cannot be written is said, and the run goes on."""
        self._tick()
        self._saved = time.monotonic()
        if not self.fabric.is_global_zero:
            return
        if best:
            self._keep(self.write_best)
        self._keep(self._write_checkpoint)

    def _write_checkpoint(self) -> None:
        self.state.write(self.folder / runs.CHECKPOINTS)

    def _write_curve(self) -> None:
        runs.write_curve(self.folder, self.progress.curve)

    def write_best(self) -> None:
        """Write the best weights as a model file; does nothing while there are none."""
        if self.state.best:
            save(self.best_model(), self.folder / runs.BEST)

    def best_model(self) -> Any:
        """A fresh model with the weights of the best validation, on the CPU."""
        with torch.random.fork_rng(devices=[]):  # its first weights are drawn, and thrown away
            model = self.recipe.build()
        model.to(next(self.module.parameters()).dtype).load_state_dict(self.state.best)
        return model

    def _keep(self, write: Callable[[], None]) -> None:
        """Write, or say why that is impossible: each reason once, until what failed works again."""
        try:
            write()
        except OSError as error:
            why = error.errno or str(error)
            if why not in self._failing.values():
                self.report.say(
                    f"cannot save: {error}. The run goes on, and what was saved before stays; free "
                    "some space before the next save."
                )
            self._failing[write.__name__] = why
            return
        if self._failing.pop(write.__name__, None) and not self._failing:
            self.report.say("saving works again")

    def _tick(self) -> None:
        now = time.monotonic()
        self.progress.seconds += now - self._clock
        self._clock = now
        if self.fabric.device.type == "cuda":
            used = torch.cuda.max_memory_allocated(self.fabric.device)
            self.progress.peak_memory = max(self.progress.peak_memory, used)

    def _resume(self) -> None:
        self._clock = time.monotonic()
        progress, kept = self.progress, self.folder / runs.CHECKPOINTS
        found = of_the_first(self.fabric, lambda: checkpoint.read(kept, self.report.say))
        if found is None:
            return
        tensors, plain = found
        runs.check_began(self.folder, plain.get("precision"), progress.precision, runs.PRECISION)
        kept_data = plain["source"], plain.get("digest")
        runs.check_data(self.folder, kept_data, (progress.source, progress.digest))
        if plain.get("device", progress.device) != progress.device:
            self.report.say(f"on {progress.device} from here on; on {plain['device']} until now")
        try:
            self.state.take(tensors, plain)
        except (RuntimeError, KeyError) as error:  # whole, so of another model than today's
            raise ValueError(
                f"`--out` must hold checkpoints that this version reads, got {kept}: {error}. Use "
                "the version that wrote them, or remove that folder to begin again."
            ) from None
        self.report.say(f"resuming {self.folder} at step {self.progress.step} of {self.steps}")
        if self.fabric.is_global_zero:
            self._keep(self._write_curve)
            self._keep(self.write_best)
