"""Builds the MNIST digits inside the package from the official files.

    python -m fernn.data.embedded.build FOLDER

Of every class, 600 train and 100 test digits, evenly spaced in the official order (the test files
begin with the cleaner hands, so the first ones would not do), written in that order as gzip IDX.
No draw is made: the same official files give the same digits. The gzip bytes also depend on zlib,
so the printed SHA-256, which go into `fernn/data/_digits.py`, are those of the plain IDX files.
"""

import gzip
import hashlib
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fernn._files import written_whole
from fernn.data._digits import EMBEDDED_FOLDER, load_digits
from fernn.data._idx import idx_bytes

CLASSES = 10


def choose(labels: NDArray[np.uint8], per_class: int) -> NDArray[np.intp]:
    """Positions of `per_class` digits of every class, evenly spaced within it, in file order."""
    chosen = []
    for digit in range(CLASSES):
        where = np.flatnonzero(labels == digit)
        chosen.append(where[np.arange(per_class) * len(where) // per_class])
    return np.sort(np.concatenate(chosen))


def build(source: Path, target: Path) -> dict[str, str]:
    """Writes the four files into `target`; returns the SHA-256 of each, unpacked, by name."""
    sums = {}
    for prefix, train, per_class in (("train", True, 600), ("t10k", False, 100)):
        digits = load_digits(source, train=train)
        labels = digits.labels.numpy().astype(np.uint8)
        chosen = choose(labels, per_class)
        for name, array in (
            (f"{prefix}-images-idx3-ubyte", digits.images.numpy()[chosen]),
            (f"{prefix}-labels-idx1-ubyte", labels[chosen]),
        ):
            plain = idx_bytes(array)
            sums[name] = hashlib.sha256(plain).hexdigest()
            with written_whole(target / f"{name}.gz") as part:
                part.write_bytes(gzip.compress(plain, compresslevel=9, mtime=0))
    return sums


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m fernn.data.embedded.build FOLDER")
    for name, digest in build(Path(sys.argv[1]), EMBEDDED_FOLDER).items():
        print(f"{digest}  {name}")
