"""MNIST digits: a small real subset inside the package, or the four official files.

Source: Yann LeCun, Corinna Cortes and Christopher J. C. Burges, after NIST Special Databases 1 and
3; CC BY-SA 3.0 (see `embedded/ATTRIBUTION.md`). 28×28 grey, white on black, ten classes.
"""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fernn.data._errors import DataError
from fernn.data._files import reason
from fernn.data._idx import idx_bytes, read_idx

EMBEDDED_FOLDER = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class IdxFile:
    """What one MNIST file must be; the digest is that of the plain file, however it is packed."""

    name: str
    shape: tuple[int, ...]
    sha256: str

    def read(self, path: Path) -> NDArray[np.uint8]:
        """The array in `path`, which must be this file to the byte."""
        array = read_idx(path, self.shape)
        found = hashlib.sha256(idx_bytes(array)).hexdigest()
        if found != self.sha256:
            raise DataError(
                f"{path} has SHA-256 {found} when unpacked, expected {self.sha256}; it is damaged "
                f"or not the real {self.name}: download it again."
            )
        return array


OFFICIAL = (
    IdxFile(
        "train-images-idx3-ubyte",
        (60000, 28, 28),
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        (60000,),
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        (10000, 28, 28),
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        (10000,),
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)

# As printed by `python -m fernn.data.embedded.build FOLDER`.
EMBEDDED = (
    IdxFile(
        "train-images-idx3-ubyte",
        (6000, 28, 28),
        "276107be590759c3f0926df722c4de39cdda1227591a1ecd47a184690a8ebf06",
    ),
    IdxFile(
        "train-labels-idx1-ubyte",
        (6000,),
        "68a5c4f7f395a30b3c9c1866520c6eee961a3d0347446a56e17e4f65c8dfbbc6",
    ),
    IdxFile(
        "t10k-images-idx3-ubyte",
        (1000, 28, 28),
        "08212e895b958225f959f761e33da53e35faa44cebc75e329dcaa7b477fbddc0",
    ),
    IdxFile(
        "t10k-labels-idx1-ubyte",
        (1000,),
        "a8455fc3bf4f53a12fd7fac83ac10b16241e37d6ab97bdfad5c2ebdffb543bea",
    ),
)


@dataclass(frozen=True, eq=False)
class Digits:
    """Digits and what they are: images uint8 [N, 28, 28], labels int64 [N], and their source."""

    images: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    source: str

    def __len__(self) -> int:
        return len(self.labels)


def load_digits(root: str | os.PathLike[str] | None = None, train: bool = True) -> Digits:
    """The train or test digits of MNIST.

    Without `root`, the subset inside the package: 6000 train and 1000 test digits, as many of each
    class. With `root`, all 60000 or 10000 from a folder that holds the official IDX files, plain or
    gzip; they are verified byte for byte.

    >>> digits = load_digits()
    >>> digits.images.shape, digits.labels.bincount().unique()
    (torch.Size([6000, 28, 28]), tensor([600]))
    """
    folder = EMBEDDED_FOLDER if root is None else Path(root)
    images_file, labels_file = (EMBEDDED if root is None else OFFICIAL)[0 if train else 2 :][:2]
    images = images_file.read(_find(folder, images_file.name))
    labels = labels_file.read(_find(folder, labels_file.name))
    whose = "embedded MNIST subset" if root is None else "MNIST"
    return Digits(
        images=torch.from_numpy(images),
        labels=torch.from_numpy(labels).to(torch.int64),
        source=f"{whose}, {'train' if train else 'test'}, {len(labels)} digits",
    )


def _find(folder: Path, name: str) -> Path:
    try:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    except OSError as error:
        raise DataError(f"`root` {folder} cannot be read: {reason(error)}.") from error
    raise DataError(
        f"`root` must be a folder that holds {name} or {name}.gz, found neither in {folder}; "
        "`fernn data fetch mnist` downloads them."
    )
