"""The training loop: steps, validations, checkpoints, and what to do when one of them fails.

A run is a pure function of recipe and seed: batches are numbered, the learning rate is a function
of the step, and everything else that a step reads is in the checkpoint. So a run that was killed
ends where an uninterrupted one does, to the bit on a CPU.
"""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fernn.data import Batch, Videos
from fernn.experiments import objective, runs
from fernn.experiments.board import Board
from fernn.experiments.fabric import Fabric
from fernn.experiments.progress import Report
from fernn.experiments.recipes import Recipe
from fernn.experiments.state import Progress, State
from fernn.models import save

T = TypeVar("T")


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
        report: Report,
        micro_batch: int | None,
        save_minutes: float,
        stop: Callable[[], bool],
    ) -> None:
        self.fabric, self.recipe, self.folder, self.report = fabric, recipe, folder, report
        self.train, self.val, self.stop = train, val, stop
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
        adam = torch.optim.Adam(built.parameters(), lr=recipe.training.learning_rate)
        self.model, self.optimizer = fabric.setup(built, adam)
        self.module: nn.Module = self.model.module
        micro = min(micro_batch or batch, self.local_batch)
        self.progress = Progress(micro_batch=micro, source=source)
        scaler = getattr(fabric.strategy.precision, "scaler", None)
        self.state = State(self.module, adam, scaler, fabric.device, self.progress)
        self.save_seconds, self._saved = 60 * save_minutes, time.monotonic()
        self._board = Board(folder / runs.BOARD, report.say) if fabric.is_global_zero else None

    def run(self) -> None:
        """Train to the last epoch, or raise `DivergedError` or `Interrupted`."""
        self._resume()
        progress, epochs = self.progress, self.recipe.training.epochs
        self.report.begin(f"{self.recipe.name} {self.recipe.scale}", progress.step, self.steps)
        self._clock = time.monotonic()
        while progress.epoch < epochs:
            self._epoch()
            self._end_of_epoch()
            if sum(self._reduced(torch.tensor([self.stop()], dtype=torch.float64), "sum")):
                raise Interrupted
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
        begun = time.monotonic()
        for batch in batches:
            loss, stop = self._step(batch)
            now = time.monotonic()
            progress.train_seconds += now - begun
            begun = now
            progress.step += 1
            progress.batch += 1
            progress.loss_sum += loss
            progress.sequences += self.recipe.training.batch_size
            self.report.step(progress.step, loss, progress.sequences / progress.train_seconds)
            if stop:
                self._save()
                raise Interrupted
            last = progress.batch == self.batches  # the end of the epoch saves by itself
            if not last and now - self._saved >= self.save_seconds:
                self._save()
                begun = time.monotonic()

    def _step(self, batch: Batch) -> tuple[float, bool]:
        """One step of the optimiser: the loss, and whether to stop after it.

        Weights change only when loss and gradient are finite on every rank.
        """
        self.optimizer.zero_grad()
        mean = self._fitting(lambda: self._gradients(batch))
        norm = self._norm()
        told = torch.stack([mean, norm, mean.new_tensor(float(self.stop()))])
        loss, norm_value, stop = self._reduced(told, "mean")
        if not math.isfinite(loss) or not math.isfinite(norm_value):
            self._diverged("loss" if not math.isfinite(loss) else "gradient")
        rate = self.recipe.training.rate(self.progress.step, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        return loss, stop > 0

    def _reduced(self, values: Tensor, how: str) -> list[float]:
        """A few numbers over all ranks."""
        reduced = self.fabric.all_reduce(values, reduce_op=how)
        assert isinstance(reduced, Tensor)
        return [float(value) for value in reduced.tolist()]

    def _gradients(self, batch: Batch) -> Tensor:
        """The mean loss of the batch; its gradient is added up over micro-batches."""
        size = len(batch.frames)
        parts = objective.parts(batch, self.progress.micro_batch)
        mean = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
        for index, part in enumerate(parts):
            with self.fabric.no_backward_sync(self.model, enabled=index < len(parts) - 1):
                loss = objective.loss(self.recipe, self.model, part) * (len(part.frames) / size)
                self.fabric.backward(loss)
            mean += loss.detach()
        return mean

    def _norm(self) -> Tensor:
        """The norm of the gradient, clipped. Loss scaling skips what is not finite by itself."""
        clip = self.recipe.training.clip
        if clip is not None:
            norm = self.fabric.clip_gradients(
                self.model, self.optimizer, max_norm=clip, error_if_nonfinite=False
            )
        else:
            gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients)
        assert norm is not None
        return torch.zeros_like(norm) if self.state.scaler is not None else norm

    def _fitting(self, work: Callable[[], T]) -> T:
        """`work`, in micro-batches half as large whenever the memory is too small for it."""
        while True:
            try:
                return work()
            except torch.OutOfMemoryError:
                micro = self.progress.micro_batch
                # One rank alone cannot try again: the others wait for its gradients.
                if micro == 1 or self.fabric.world_size > 1:
                    smaller = f"--micro-batch {micro // 2}, which takes the same steps"
                    raise MemoryError(
                        f"the memory of {self.fabric.device} is too small for {micro} sequences at "
                        f"once. Use {smaller if micro > 1 else 'a larger device'}."
                    ) from None
                self.progress.micro_batch = (micro + 1) // 2
            # Outside of the handler, whose traceback holds the tensors that did not fit.
            self.optimizer.zero_grad()
            if self.fabric.device.type == "cuda":
                torch.cuda.empty_cache()
            self.report.say(
                f"out of memory with {micro} sequences at once; going on with "
                f"{self.progress.micro_batch}, added up to the same batch of "
                f"{self.recipe.training.batch_size}"
            )

    def _diverged(self, what: str) -> None:
        step, rate = self.progress.step + 1, self.recipe.training.learning_rate
        self.optimizer.zero_grad()
        # A forward pass may have spoilt the statistics of batch-norm; then the last save stands.
        if self.state.finite():
            self._save()
        raise DivergedError(
            f"the {what} of step {step} is not finite; the run stopped before it and its last good "
            f"state is in {self.folder / runs.CHECKPOINTS}. Lower `training.learning_rate` "
            f"({rate:g} now), set `training.clip`, or use a wider --precision, in another --out."
        )

    def _validate(self) -> float:
        """The mean loss over the validation split, at epoch 0 of it: always the same sequences."""
        self.model.eval()
        dtype = next(self.module.parameters()).dtype
        total = torch.zeros(2, dtype=torch.float64, device=self.fabric.device)
        batches = self.val.batches(
            self.local_batch, 0, rank=self.fabric.global_rank, world_size=self.fabric.world_size
        )
        # The module and not its wrapper: ranks may have different numbers of batches here, and the
        # wrapper would wait for the others.
        with torch.no_grad(), self.fabric.autocast():
            for batch in batches:
                batch = batch._replace(frames=batch.frames.to(dtype))
                for part in objective.parts(batch, self.progress.micro_batch):
                    loss, count = objective.loss(self.recipe, self.module, part), len(part.frames)
                    total += torch.stack([loss * count, loss.new_tensor(count)])
        loss_sum, sequences = self._reduced(total, "sum")
        return loss_sum / sequences

    def _end_of_epoch(self) -> None:
        progress = self.progress
        val_loss = self._fitting(self._validate)
        progress.epoch += 1
        improved = self.state.better(val_loss)
        self._tick()
        line = {
            "step": progress.step,
            "epoch": progress.epoch,
            "sequences": progress.sequences,
            "seconds": progress.seconds,
            "train_loss": progress.loss_sum / self.batches,
            "val_loss": val_loss,
            "lr": self.recipe.training.rate(progress.step - 1, self.steps),
        }
        progress.curve.append(line)
        progress.batch, progress.loss_sum = 0, 0.0
        if self._board is not None:
            self._board.add(line)
            self._keep(self._write_curve)
        self.report.validated(line, self.recipe.training.epochs, best=improved)
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
        try:
            write()
        except OSError as error:
            self.report.say(
                f"cannot save: {error}. The run goes on, and what was saved before stays; free "
                "some space before the next save."
            )

    def _tick(self) -> None:
        now = time.monotonic()
        self.progress.seconds += now - self._clock
        self._clock = now
        if self.fabric.device.type == "cuda":
            used = torch.cuda.max_memory_allocated(self.fabric.device)
            self.progress.peak_memory = max(self.progress.peak_memory, used)

    def _resume(self) -> None:
        self._clock = time.monotonic()
        found = False
        for turn in (True, False):  # rank 0 removes what is broken, and the others read after it
            if self.fabric.is_global_zero is turn:
                found = self.state.read(self.folder / runs.CHECKPOINTS, self.report.say)
            self.fabric.barrier()
        if not found:
            return
        self.report.say(f"resuming {self.folder} at step {self.progress.step} of {self.steps}")
        if self.fabric.is_global_zero:
            self._keep(self._write_curve)
            self._keep(self.write_best)
