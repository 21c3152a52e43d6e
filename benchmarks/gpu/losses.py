"""Does bfloat16 train as float32 does? One short run in both forms, from the same weights."""

import torch
from torch import Tensor

from benchmarks.gpu.timing import precision
from benchmarks.gpu.translation import CHANNELS, FRAMES, HORIZON, LAYERS, forecast_loss
from benchmarks.published import PublishedForecaster
from benchmarks.report import TAIL
from fernn import Forecaster
from fernn.data import FlowingMNIST
from fernn.experiments.recipes import find

SEEDS = (0, 1)


@torch.backends.cudnn.flags(enabled=True, allow_tf32=False, benchmark=False)
def run(
    steps: int = 300, batch: int = 32, *, channels: int = CHANNELS, device: str = "cuda"
) -> dict[str, object]:
    """Losses of FERNN-V^T_1 on digits that move with V^T_1, published in float32, ours in bfloat16.

    Rate, warm-up and clip are those of the scale `short`. A step sees fresh videos, the same for
    every run; a seed draws the weights. `constant` is the loss of the best forecast that does not
    look at its input, on the last batches: a model above it has learnt nothing of the motion.
    """
    recipe = find("table1/translation/fernn-v1", "short")
    flow, training = recipe.options["flow"], recipe.training
    digits = FlowingMNIST(flow, "train", size=steps * batch, device=device)
    losses: dict[str, list[float]] = {}
    for seed in SEEDS:
        torch.manual_seed(seed)
        model = Forecaster(
            flow=flow, hidden_channels=channels, decoder_layers=LAYERS, readout="published"
        ).to(device)
        for form, autocast in ((PublishedForecaster.of(model).to(device), False), (model, True)):
            adam = torch.optim.Adam(form.parameters())
            lost: list[Tensor] = []
            for step in range(steps):
                past, future = _batch(digits, step, batch)
                adam.param_groups[0]["lr"] = training.rate(step, steps)
                with precision(autocast, device):
                    loss = forecast_loss(form, past, future)
                adam.zero_grad()
                loss.backward()
                assert training.clip is not None
                torch.nn.utils.clip_grad_norm_(form.parameters(), training.clip)
                adam.step()
                lost.append(loss.detach())
            name = "ours, bfloat16" if autocast else "published, float32"
            losses[f"{name}, seed {seed}"] = torch.stack(lost).tolist()
    last = torch.cat([_batch(digits, step, batch)[1] for step in range(steps)[-TAIL:]])
    return {
        "batch": batch,
        "constant": float((last - last.mean()).square().mean()),
        "losses": losses,
    }


def _batch(digits: FlowingMNIST, step: int, batch: int) -> tuple[Tensor, Tensor]:
    frames = digits.batch(range(step * batch, (step + 1) * batch), epoch=0).frames
    return frames[:, :FRAMES].contiguous(), frames[:, FRAMES : FRAMES + HORIZON].contiguous()
