"""Whether two forms are one function: no ratio is said of forms that are not.

At initialisation a forecast is little but the decoder's biases, and the loss is that of the target
alone: a model without recurrence has the same one. So predictions and the gradient of every
parameter are compared on weights that let the input through, in float32 and as timed, and with
gradients, as a step is timed. Half precision is held to what it costs the published form.
"""

import copy
import math
from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.gpu.timing import precision

if TYPE_CHECKING:
    from benchmarks.gpu.row import Row

# Relative difference of the two losses; the form that is timed may interpolate otherwise than ours.
SAME = {"float32": 1e-4, "as timed": 2e-2, "published as timed": 2e-2}
EXACT = 1e-3  # relative L2 of predictions and gradients in float32
HALF, COSTS, MOST = 5e-2, 2.0, 0.3  # as timed: this much, or twice what it costs the published
YARDSTICK = "published, autocast"


def check(row: "Row", published: nn.Module, ours: nn.Module) -> dict[str, object]:
    """What `refusals` judges: losses as initialised, errors on livelier weights, operators."""
    found = losses(row, row.same(ours) if row.same else published, ours)
    if row.same:  # then nothing else is asked of the form that is timed
        theirs, _ = losses(row, published, ours)["float32"]
        found["published as timed"] = [theirs, found["float32"][1]]
    return {
        "losses": found,
        "errors": errors(row, ours),
        "operators": operators(row, ours),  # the backend that really ran
    }


def refusals(record: dict, needs: str) -> list[str]:
    """Why a ratio of the two forms is not said; none where they are one function, as timed."""
    reasons = []
    if not any(name.startswith(f"{needs}.") for name in record["operators"]):
        ran = ", ".join(record["operators"]) or "none"
        reasons.append(f"the operator {needs} did not run, of the library's: {ran}")
    for label, (theirs, mine) in record["losses"].items():
        if not abs(mine - theirs) <= SAME[label] * abs(theirs):
            reasons.append(f"losses differ in {label}: {theirs} and {mine}")
    measured = record["errors"]
    for label in ("float32", "as timed"):
        for name, error in measured[label].items():
            bound = EXACT
            if label == "as timed":
                bound = min(MOST, max(HALF, COSTS * measured[YARDSTICK][name]))
            if not error <= bound:
                reasons.append(f"{name} differs by {error:.1e} in {label}, more than {bound:.1e}")
    return reasons


def losses(row: "Row", published: nn.Module, ours: nn.Module) -> dict[str, list[float]]:
    """The losses of both forms on the same batch, in float32 and with ours as timed."""
    given, target = row.sample(row.checked)

    def loss_of(model: nn.Module, autocast: bool) -> float:
        with torch.no_grad(), precision(autocast, given.device.type):
            return row.loss(model, given, target).item()

    found = {}
    for label, autocast in (("float32", False), ("as timed", True)):
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=autocast, benchmark=False):
            found[label] = [loss_of(published, False), loss_of(ours, autocast)]
    return found


def errors(row: "Row", ours: nn.Module) -> dict[str, dict[str, float]]:
    """Relative L2 of predictions and gradients against the published form in float32."""
    ours = lively(ours)
    form = (row.same or row.published)(ours)
    given, target = row.sample(row.checked)

    def results(model: nn.Module, autocast: bool) -> dict[str, Tensor]:
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=autocast, benchmark=False):
            return _results(row, model, given, target, autocast)

    want = results(form, False)
    found = {
        "float32": results(ours, False),
        "as timed": results(ours, True),
        YARDSTICK: results(form, True),
    }
    names = dict.fromkeys((*want, *found["float32"]))  # what one form lacks differs without end
    return {
        label: {name: _error(got.get(name), want.get(name)) for name in names}
        for label, got in found.items()
    }


@torch.no_grad()
def lively(model: nn.Module) -> nn.Module:
    """A copy whose outputs come from its input alone: no bias, and no damping on the way.

    Layers with a bias, which are those between states and output, get weights of variance 2 / n for
    n inputs, which ReLU neither damps nor amplifies.
    """
    model = copy.deepcopy(model)
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            layer.bias.zero_()
            layer.weight.mul_((2 / layer.weight[0].numel()) ** 0.5 / layer.weight.std())
    return model


def _results(
    row: "Row", model: nn.Module, given: Tensor, target: Tensor, autocast: bool
) -> dict[str, Tensor]:
    """Predictions and gradients by the names of our parameters, with a step's own loss."""
    seen: list[Tensor] = []
    handle = model.register_forward_hook(lambda _, __, out: seen.append(out.detach()))
    try:
        with precision(autocast, given.device.type):
            loss = row.loss(model, given, target)
    finally:
        handle.remove()
    names: dict[str, str] = getattr(model, "names", {})  # of a form: its own to ours
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    found = {"the prediction": seen[0]}
    for name, gradient in zip(parameters, gradients, strict=True):
        found[f"the gradient of {names.get(name, name)}"] = gradient
    return found


def _error(got: Tensor | None, want: Tensor | None) -> float:
    """‖got − want‖ / ‖want‖, infinite where there is nothing to compare."""
    if got is None or want is None or got.shape != want.shape:
        return math.inf
    scale = want.double().norm().item()
    return (got.double() - want.double()).norm().item() / scale if scale > 0 else math.inf


class Operators(TorchDispatchMode):
    """Which of the library's operators ran, and how often."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "fernn":
            self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def operators(row: "Row", model: nn.Module) -> dict[str, int]:
    """Those of a forward pass as timed: under autocast, with gradients to come.

    It sees the batch that was compared, for which kernels are compiled already.
    """
    model, (given, target) = copy.deepcopy(model), row.sample(row.checked)  # it keeps statistics
    with precision(True, given.device.type), Operators() as ran:
        row.loss(model, given, target)
    return dict(ran.calls)
