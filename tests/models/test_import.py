"""import fernn: torch, numpy and safetensors suffice, and the list of public names is small."""

import subprocess
import sys

import pytest

import fernn

OPTIONAL = [
    "triton",
    "lightning",
    "lightning_fabric",
    "typer",
    "rich",
    "matplotlib",
    "tensorboard",
    "av",
    "hypothesis",
    "pytest",
]


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_import_needs_no_optional_package():
    code = (
        "import sys, torch\n"
        f"for name in {OPTIONAL}:\n"
        "    sys.modules.setdefault(name, None)\n"  # importing it now raises
        "import fernn\n"
        "fernn.Forecaster(flow=fernn.Translation(radius=1), hidden_channels=2)"
        "(torch.zeros(1, 2, 1, 5, 5), 1)\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_import_brings_nothing_but_what_torch_brings():
    code = (
        "import sys, numpy.typing, torch, safetensors.torch\n"
        "before = set(sys.modules)\n"
        "import fernn\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(*sorted(new - set(sys.stdlib_module_names)))\n"
    )
    assert run(code).stdout.split() == ["fernn"]


def test_import_leaves_the_random_state_and_the_defaults_alone():
    code = (
        "import torch\n"
        "torch.manual_seed(5)\n"
        "state, dtype = torch.get_rng_state(), torch.get_default_dtype()\n"
        "threads = torch.get_num_threads()\n"
        "import fernn\n"
        "assert torch.equal(state, torch.get_rng_state())\n"
        "assert dtype == torch.get_default_dtype() and threads == torch.get_num_threads()\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name",
    [
        "Classifier",
        "FlowEquivariant",
        "FlowRNN",
        "Forecaster",
        "RigidMotion",
        "Rotation",
        "SE2",
        "Translation",
        "load",
        "load_pretrained",
        "pretrained",
        "save",
    ],
)
def test_import_offers(name):
    assert getattr(fernn, name).__module__.startswith("fernn.")
