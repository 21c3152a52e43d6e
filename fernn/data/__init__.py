"""Datasets: where they come from, and how they are read."""

from fernn.data._archive import ClipArchive
from fernn.data._bouncing import BouncingMNIST
from fernn.data._digits import Digits, load_digits
from fernn.data._errors import DataError
from fernn.data._fetch import fetch
from fernn.data._files import Progress, silent
from fernn.data._flowing import FlowingMNIST
from fernn.data._idx import read_idx
from fernn.data._kth import prepare_kth
from fernn.data._kth_summary import KTHSummary
from fernn.data._moving import MovingClips
from fernn.data._show import animation, contact_sheet
from fernn.data._videos import Batch, Videos

__all__ = [
    "Batch",
    "BouncingMNIST",
    "ClipArchive",
    "DataError",
    "Digits",
    "FlowingMNIST",
    "KTHSummary",
    "MovingClips",
    "Progress",
    "Videos",
    "animation",
    "contact_sheet",
    "fetch",
    "load_digits",
    "prepare_kth",
    "read_idx",
    "silent",
]
