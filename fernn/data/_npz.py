"""Reads the arrays of an .npz file that nobody vouches for.

`numpy.load` allocates what an array's header claims. Here the header, the directory of the zip file
and the bytes must agree before anything is allocated, and nothing is ever unpickled.
"""

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fernn.data._errors import DataError
from fernn.data._files import ZIP_ERRORS, ZIP_METHODS, reason

MAX_BYTES = 2**32  # of all arrays together; the KTH archive has 2**28
MAX_DIMS = 4
_RATIO = 1100  # deflate cannot shrink data further than 1032 to 1
_SLACK = 2**16

Array = NDArray[np.generic]


def read_npz(path: Path) -> dict[str, Array]:
    """The arrays of `path` by name; integers and text only."""
    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise DataError(f"{path} holds an array twice; make or download it again.")
            if sum(member.file_size for member in members) > MAX_BYTES:
                raise DataError(f"{path} claims more than {MAX_BYTES} bytes of arrays.")
            return {
                member.filename.removesuffix(".npy"): _read_member(path, file, member)
                for member in members
            }
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except DataError:
        raise
    except ZIP_ERRORS as error:
        raise DataError(
            f"{path} is not an .npz file, or a truncated or damaged one ({reason(error)}); make or "
            "download it again."
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}.") from error


def _read_member(path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    name = member.filename
    if not name.endswith(".npy"):
        raise DataError(
            f"{path} is not an .npz file: it holds {name!r}, expected .npy arrays alone."
        )
    if member.compress_type not in ZIP_METHODS or member.flag_bits & 0x1:
        raise DataError(
            f"{path}: {name} is encrypted or packed by another method than deflate; save the "
            "archive with `numpy.savez_compressed`."
        )
    if member.file_size > _RATIO * member.compress_size + _SLACK:
        raise DataError(
            f"{path}: {name} claims {member.file_size} bytes out of {member.compress_size}, which "
            "no zip file can hold; make or download it again."
        )
    with file.open(member) as stream:
        shape, fortran, dtype = _read_header(path, name, stream)
        size = math.prod(shape) * dtype.itemsize
        if size != member.file_size - stream.tell():
            raise DataError(
                f"{path}: {name} has a header of {dtype} {list(shape)}, {size} bytes, but "
                f"{member.file_size - stream.tell()} follow; make or download it again."
            )
        values = bytearray()
        while chunk := stream.read(2**20):
            values += chunk
        if len(values) != size:
            raise DataError(f"{path}: {name} is truncated; make or download it again.")
    flat = np.frombuffer(values, dtype=dtype)
    return flat.reshape(shape, order="F" if fortran else "C")


def _read_header(
    path: Path, name: str, stream: IO[bytes]
) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    try:
        version = npy.read_magic(stream)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error):
        raise
    except Exception as error:
        # NumPy parses the header as a Python literal and has no closed list of what that may raise.
        raise DataError(
            f"{path}: {name} is not an array ({reason(error)}); make or download it again."
        ) from error
    if dtype.kind not in "iuU" or dtype.itemsize == 0:
        raise DataError(f"{path}: {name} has type {dtype}, expected integers or text.")
    if len(shape) > MAX_DIMS or any(size < 1 for size in shape):
        raise DataError(
            f"{path}: {name} has shape {list(shape)}, expected at most {MAX_DIMS} dimensions, "
            "none of them empty."
        )
    return tuple(shape), fortran, dtype
