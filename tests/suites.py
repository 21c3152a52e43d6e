"""Tests that need a process of their own: Triton reads how it shall run when it is imported."""

import os
import subprocess
import sys
from pathlib import Path


def run_suite(path: str, select: str = "", *, interpreted: bool) -> None:
    """Run a file of kernel tests, in Triton's interpreter on the CPU or on a CUDA device."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    if interpreted:
        environment |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", select]
    done = subprocess.run(
        [*command, str(Path(__file__).parent / path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout
