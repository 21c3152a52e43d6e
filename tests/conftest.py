"""Every test starts from the same seed, and hypothesis tries the same examples every time."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("fernn", deadline=None, derandomize=True, max_examples=30, database=None)
settings.load_profile("fernn")

torch.set_num_threads(1)  # the tensors are tiny, and workers of pytest-xdist share the cores


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
