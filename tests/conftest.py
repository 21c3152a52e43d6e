"""Every test starts from the same seed, and hypothesis tries the same examples every time."""

import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fernn",
    deadline=None,
    derandomize=True,
    max_examples=30,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # of the machine
)
settings.load_profile("fernn")

torch.set_num_threads(1)  # the tensors are tiny, and workers of pytest-xdist share the cores


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pytest_collection_modifyitems(items):
    """Tests that need a GPU say so and are skipped where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
