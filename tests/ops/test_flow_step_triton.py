"""The Triton backend: kernels in the interpreter and on a device, and the rule that picks it."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from suites import run_suite
from torch.autograd import forward_ad

from fernn.ops import flow_pool, flow_step
from fernn.ops.flow_step import choose


def test_kernels_equal_the_reference_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_suite("ops/triton_suite.py", "not pool", interpreted=True)


@pytest.mark.gpu
def test_kernels_equal_the_reference_on_the_device() -> None:
    run_suite("ops/triton_suite.py", interpreted=False)


@pytest.mark.gpu
def test_hopper_kernel_equals_the_others_on_the_device() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("this kernel is for Hopper")
    run_suite("ops/hopper_suite.py", interpreted=False)


@pytest.mark.parametrize("error", [ImportError, AttributeError])
def test_a_triton_whose_gluon_is_another_leaves_the_other_kernels(error: type) -> None:
    """A name that drifted is missing where the kernel's module is imported or where it is used."""
    pytest.importorskip("triton")
    code = f"""
import sys
class Drifted:
    def find_spec(self, name, path=None, target=None):
        if name.endswith("_hopper_kernels"):
            raise {error.__name__}("gone")
sys.meta_path.insert(0, Drifted())
from fernn.ops.flow_step import _comoving
sys.exit(_comoving._hopper is not None)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("version", "hip", "rows", "taken"),
    [
        ("3.6.1", None, 8, True),
        ("3.6.1", None, 2, True),
        ("3.6.1", None, 1, False),
        ("3.6.1", "7.0", 8, False),
        ("3.7.0", None, 8, False),
        ("3", None, 8, False),
    ],
)
def test_hopper_kernel_runs_where_it_was_tested(
    version: str, hip: str | None, rows: int, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    hopper = pytest.importorskip("fernn.ops.flow_step._hopper")
    monkeypatch.setattr("triton.__version__", version)
    monkeypatch.setattr("torch.version.hip", hip)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    halo = SimpleNamespace(
        dtype=torch.bfloat16, shape=(2, 64, rows + 2, 10, 128), is_cuda=True, device="cuda"
    )
    weight, patches, new = (
        torch.empty(shape, device="meta")
        for shape in [(128, 128, 3, 3), (64, rows, 8, 16), (2, 64, rows + 2, 10, 128)]
    )
    assert hopper.fits(halo, weight, patches, new) == taken


def test_hopper_kernel_is_given_views_alone() -> None:
    """A copy would be filled instead of the buffer, in silence."""
    pytest.importorskip("triton")
    hopper = pytest.importorskip("fernn.ops.flow_step._hopper")
    x = torch.zeros(3, 2, 4, 4, 8)
    assert hopper._spread(x).data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="view"):
        hopper._spread(x.transpose(0, 1))


@pytest.mark.parametrize(
    ("canvas", "dtype", "reason"),
    [
        ((4, 4), torch.float32, "CUDA device"),
        ((4, 4), torch.float64, "float32, float16 or bfloat16"),
        ((4, 4, 4), torch.float32, "one or two spatial axes, got 3"),
        ((1, 4), torch.float32, r"at least 2 pixels a side, got \(1, 4\)"),
    ],
)
def test_named_backend_raises_where_it_cannot_run(
    canvas: tuple[int, ...], dtype: torch.dtype, reason: str
) -> None:
    dim = len(canvas)
    h, drive = (torch.zeros(1, n, 8, *canvas, dtype=dtype) for n in (2, 1))
    kernel, shift = torch.zeros(8, 8, *(3,) * dim, dtype=dtype), torch.zeros(2, dim).long()
    with pytest.raises(ValueError, match=r'`backend` must not be "triton" here: .*' + reason):
        flow_step(h, kernel, drive, shift, backend="triton")
    if canvas != (1, 4):  # pooling needs no halo
        with pytest.raises(ValueError, match=r'`backend` must not be "triton" here: .*' + reason):
            flow_pool(h, shift, backend="triton")
    assert choose("auto", h, kernel, shift) == "lean"


def test_forward_mode_is_left_to_plain_torch() -> None:
    h, kernel, shift = torch.zeros(1, 2, 8, 4, 4), torch.zeros(8, 8, 3, 3), torch.zeros(2, 2).long()
    with forward_ad.dual_level():
        assert choose("auto", h, kernel, shift) == "reference"
        with pytest.raises(ValueError, match="no forward-mode derivatives, and a dual level is op"):
            choose("triton", h, kernel, shift)
    assert choose("auto", h, kernel, shift) == "lean"


@pytest.mark.gpu
def test_auto_takes_triton_for_channels_in_eights() -> None:
    shift = torch.zeros(2, 2, device="cuda").long()
    for channels, backend in ((16, "triton"), (12, "lean")):
        h = torch.zeros(1, 2, channels, 4, 4, device="cuda")
        kernel = torch.zeros(channels, channels, 3, 3, device="cuda")
        assert choose("auto", h, kernel, shift) == backend


def test_import_leaves_triton_alone() -> None:
    code = "import sys, fernn; sys.exit(any(m.partition('.')[0] == 'triton' for m in sys.modules))"
    subprocess.run([sys.executable, "-c", code], check=True)
