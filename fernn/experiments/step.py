"""One step of the optimiser: the gradient of a batch in micro-batches that fit, clipping, Adam."""

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fernn.data import Batch
from fernn.experiments import ahead, objective
from fernn.experiments.ahead import Told
from fernn.experiments.fabric import Fabric
from fernn.experiments.graph import Graphed
from fernn.experiments.progress import Report
from fernn.experiments.recipes import Recipe
from fernn.experiments.state import Progress

T = TypeVar("T")
LEAST_SCALE = 1.0
"""Loss scaling halves its scale where a gradient overflows, and skips the step. What overflows at a
scale of one overflows by itself, and no smaller scale gets the run on."""


def works_ahead(fabric: Fabric) -> bool:
    """Whether steps are launched before the numbers of earlier ones are known: on one GPU.

    Loss scaling asks for them after every step, and so do several processes of each other.
    """
    return fabric.device.type == "cuda" and fabric.world_size == 1 and _scaler(fabric) is None


def adam(fabric: Fabric, parameters: Iterable[nn.Parameter], rate: float) -> torch.optim.Adam:
    """Adam; the fused one can be told by the device itself that a step shall change nothing."""
    return torch.optim.Adam(parameters, lr=rate, fused=True if works_ahead(fabric) else None)


class Stepper:
    """Takes the steps of a run, and evaluates losses, in micro-batches of `progress.micro_batch`.

    On one GPU the passes over a micro-batch are a CUDA graph.
    """

    def __init__(
        self,
        fabric: Fabric,
        recipe: Recipe,
        model: Any,
        optimizer: Any,
        progress: Progress,
        report: Report,
    ) -> None:
        self.fabric, self.recipe, self.model, self.optimizer = fabric, recipe, model, optimizer
        self.progress, self.report, self.scaler = progress, report, _scaler(fabric)
        self.ahead = ahead.STEPS if works_ahead(fabric) else 0
        graphs = fabric.device.type == "cuda" and fabric.world_size == 1
        parameters = [p for p in model.module.parameters() if p.requires_grad]
        self._pass = Graphed(self._both_ways, parameters, report.say, enabled=graphs)
        self._forward = Graphed(self._one_way, [], report.say, enabled=graphs)
        self._bad = torch.zeros((), device=fabric.device)
        self.overflows = False
        """Whether the last step was skipped, and no smaller scale of the loss can help."""

    def take(self, batch: Batch, rate: float, stop: bool) -> Told:
        """One step at a learning rate; it tells loss, norm of the gradient, and whether to stop.

        The numbers are those of all ranks. Weights change only while all of them are finite, in
        this step and those before.
        """
        self._pass.zero()
        mean = self.fitting(lambda: self._gradients(batch))
        norm = self._norm()
        values = torch.stack([mean, norm, torch.full_like(mean, float(stop))])
        reduced = self.fabric.all_reduce(values, reduce_op="mean")
        assert isinstance(reduced, Tensor)
        told = Told(reduced)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if self.ahead:
            self._bad.logical_or_(~reduced.isfinite().all())
            self.optimizer.optimizer.found_inf = self._bad
            self.optimizer.step()
        elif all(math.isfinite(value) for value in told.read()):
            scale = math.inf if self.scaler is None else self.scaler.get_scale()
            self.optimizer.step()
            skipped = self.scaler is not None and self.scaler.get_scale() < scale
            self.overflows = skipped and scale <= LEAST_SCALE
        return told

    def forget(self) -> None:
        """Drop the gradient."""
        self._pass.zero()

    def loss(self, batch: Batch) -> Tensor:
        """The sum of the losses of a batch's sequences, without gradients.

        Of the module and not its wrapper: ranks may have different numbers of batches here, and
        the wrapper would wait for the others.
        """
        total = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
        for part in objective.parts(batch, self.progress.micro_batch):
            total += self._forward(part, len(part.frames))
        return total

    def fitting(self, work: Callable[[], T]) -> T:
        """`work`, in micro-batches half as large whenever the memory is too small for it."""
        while True:
            try:
                return work()
            except torch.OutOfMemoryError:
                micro = self.progress.micro_batch
                # One rank alone cannot try again: the others wait for its gradients.
                if (micro == 1 and not self._graphs()) or self.fabric.world_size > 1:
                    smaller = f"--micro-batch {micro // 2}, which takes the same steps"
                    raise MemoryError(
                        f"the memory of {self.fabric.device} is too small for {micro} sequences at "
                        f"once. Use {smaller if micro > 1 else 'a larger device'}."
                    ) from None
            # Outside of the handler, whose traceback holds the tensors that did not fit.
            if self._graphs():
                self._pass.release()
                self._forward.release()
                told = "going on without CUDA graphs, whose memory serves nothing else"
            else:
                self.progress.micro_batch = (micro + 1) // 2
                told = (
                    f"going on with {self.progress.micro_batch}, added up to the same batch of "
                    f"{self.recipe.training.batch_size}"
                )
            self._pass.zero()
            if self.fabric.device.type == "cuda":
                torch.cuda.empty_cache()
            self.report.say(f"out of memory with {micro} sequences at once; {told}")

    def _graphs(self) -> bool:
        return self._pass.recorded or self._forward.recorded

    def _gradients(self, batch: Batch) -> Tensor:
        """The mean loss of the batch; its gradient is added up over micro-batches."""
        size = len(batch.frames)
        parts = objective.parts(batch, self.progress.micro_batch)
        mean = torch.zeros((), dtype=torch.float64, device=self.fabric.device)
        for index, part in enumerate(parts):
            with self.fabric.no_backward_sync(self.model, enabled=index < len(parts) - 1):
                mean += self._pass(part, len(part.frames) / size)
        return mean

    def _both_ways(self, part: Batch, share: float) -> Tensor:
        loss = objective.loss(self.recipe, self.model, part) * share
        self.fabric.backward(loss)
        return loss.detach()

    def _one_way(self, part: Batch, share: float) -> Tensor:
        module: nn.Module = self.model.module
        part = part._replace(frames=part.frames.to(next(module.parameters()).dtype))
        with torch.no_grad(), self.fabric.autocast():
            return objective.loss(self.recipe, module, part) * share

    def _norm(self) -> Tensor:
        """The norm of the gradient, clipped. Loss scaling skips what is not finite by itself."""
        clip = self.recipe.training.clip
        if clip is not None:
            norm = self.fabric.clip_gradients(
                self.model, self.optimizer, max_norm=clip, error_if_nonfinite=False
            )
        else:
            gradients = [p.grad for p in self.model.module.parameters() if p.grad is not None]
            norm = torch.nn.utils.get_total_norm(gradients)
        assert norm is not None
        return torch.zeros_like(norm) if self.scaler is not None else norm


def _scaler(fabric: Fabric) -> Any:
    return getattr(fabric.strategy.precision, "scaler", None)
