"""Where the real data lies, when it lies anywhere."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data beside the checkout; tests that need it are skipped without it."""
    folder = Path(__file__).parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the real data is not beside this checkout, in ../shared/data")
    return folder
