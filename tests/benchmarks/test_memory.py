"""A batch in parts: the same gradient, and a table of what it costs."""

import torch
from torch import nn

from benchmarks import report
from benchmarks.gpu import parts
from benchmarks.gpu.row import backward
from benchmarks.gpu.translation import ROWS, forecast_loss
from fernn import Forecaster


def test_gradients_of_parts_add_up_to_that_of_the_batch() -> None:
    torch.manual_seed(0)
    model = Forecaster(hidden_channels=4, decoder_layers=1)
    given, target = torch.rand(4, 3, 1, 6, 6), torch.rand(4, 10, 1, 6, 6)
    found = []
    for number in (1, 2, 4):
        model.zero_grad()
        row = ROWS[parts.NAME]
        assert row.loss is forecast_loss
        loss = backward(row, model, given, target, autocast=True, parts=number)
        gradient = nn.utils.parameters_to_vector([p.grad for p in model.parameters()])
        found.append((loss, gradient))
    (whole, wanted), *others = found
    for loss, gradient in others:
        torch.testing.assert_close(loss, whole, rtol=1e-3, atol=0)
        assert (gradient - wanted).norm() < 1e-2 * wanted.norm()  # bfloat16 rounds each part


def test_the_table_has_rate_and_memory_of_each_part() -> None:
    points = [
        {"parts": 1, "batch": 128, "sequences_per_second": 1600.0, "peak_gib": 15.5},
        {"parts": 2, "batch": 128, "sequences_per_second": 1520.0, "peak_gib": 8.04},
    ]
    environment = {"commit": "0" * 40, "dirty": False, "date": "2000-01-01", "torch": "9.9"}
    run = {"environment": environment, "gpu": "A", "cudnn": 1, "matmul_flops_per_second": 1e12}
    lines = report.memory(run | {"memory": {"row": "FERNN-V^T_2", "points": points}}).splitlines()
    assert lines[0].startswith("| FERNN-V^T_2, a batch of 128 in |")
    assert lines[2:] == [
        "| one part | 1,600 | – | 15.5 GiB |",
        "| 2 parts | 1,520 | 5% | 8.0 GiB |",
        "",
        "A, 2000-01-01, torch 9.9, cuDNN 1, commit 000000000000; bfloat16 8192³ product 1 TFLOP/s.",
    ]
