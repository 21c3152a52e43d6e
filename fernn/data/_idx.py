"""IDX, the file format of MNIST: a magic number, big-endian sizes, then the raw values.

Only unsigned bytes are read, the one type that MNIST uses. The reader takes nothing on trust: the
sizes in the header bound what is read, and what is read is compared with the sizes, so neither an
absurd header nor a gzip bomb costs more memory than the bytes that are really there.
"""

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from fernn.data._errors import DataError
from fernn.data._files import reason

MAX_BYTES = 2**28  # five times the largest MNIST file
MAX_DIMS = 4
_UBYTE = 0x08
_CHUNK = 2**20

_Stream = BinaryIO | gzip.GzipFile


def read_idx(
    path: str | os.PathLike[str], shape: tuple[int, ...] | None = None
) -> NDArray[np.uint8]:
    """The array in an IDX file, plain or gzip (told apart by content, not by name).

    Where `shape` is given, a file of any other shape raises before its values are read.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            zipped = file.peek(2)[:2] == b"\x1f\x8b"
            stream: _Stream = gzip.GzipFile(fileobj=file) if zipped else file
            found = _read_shape(path, stream)
            if shape is not None and found != shape:
                raise DataError(
                    f"{path} holds an array of shape {found}, expected {shape}; "
                    "is it the file of another split or another dataset?"
                )
            size = math.prod(found)
            values = _read_up_to(stream, size)
            trailing = bool(stream.read(1))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is a truncated or damaged gzip file ({reason(error)}); download it again."
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {reason(error)}.") from error
    if len(values) != size:
        raise DataError(
            f"{path} is truncated: its header promises {size} bytes of values, found "
            f"{len(values)}; download it again."
        )
    if trailing:
        raise DataError(
            f"{path} goes on after the {size} bytes of values that its header promises; "
            "download it again."
        )
    return np.frombuffer(values, dtype=np.uint8).reshape(found)


def idx_bytes(array: NDArray[np.uint8]) -> bytes:
    """The bytes of the plain IDX file that holds `array`; the inverse of `read_idx`."""
    header = struct.pack(f">4B{array.ndim}I", 0, 0, _UBYTE, array.ndim, *array.shape)
    return header + array.tobytes()


def _read_shape(path: Path, stream: _Stream) -> tuple[int, ...]:
    magic = _read_up_to(stream, 4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise DataError(
            f"{path} is not an IDX file: it begins with 0x{magic.hex()}, expected 0x000008 and the "
            "number of dimensions."
        )
    if magic[2] != _UBYTE:
        raise DataError(
            f"{path} holds values of IDX type 0x{magic[2]:02x}, expected 0x{_UBYTE:02x} "
            "(unsigned bytes)."
        )
    if not 1 <= magic[3] <= MAX_DIMS:
        raise DataError(f"{path} has {magic[3]} dimensions, expected 1 to {MAX_DIMS}.")
    sizes = _read_up_to(stream, 4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataError(f"{path} is truncated: it ends inside its header; download it again.")
    shape: tuple[int, ...] = struct.unpack(f">{magic[3]}I", sizes)
    if not 1 <= math.prod(shape) <= MAX_BYTES:
        raise DataError(
            f"{path} has a header of shape {shape}, {math.prod(shape)} bytes, expected 1 to "
            f"{MAX_BYTES}; the header is damaged or the file is not MNIST."
        )
    return shape


def _read_up_to(stream: _Stream, size: int) -> bytearray:
    # In chunks: one `read(size)` would allocate what the header claims, not what is there.
    values = bytearray()
    while len(values) < size and (chunk := stream.read(min(_CHUNK, size - len(values)))):
        values += chunk
    return values
