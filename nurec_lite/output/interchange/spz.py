# SPDX-License-Identifier: Apache-2.0
"""Gaussians as SPZ, version 3 (Niantic, https://github.com/nianticlabs/spz): quantised values, one array after another, in gzip.

Axes are those of the format unless others are asked for: x right, y up, z back. Readers on three.js take these; SuperSplat shows any file
as if y were down. Values are little-endian:

    header      uint32 magic, version, count; uint8 degree, fractional bits, flags, reserved
    positions   3 x 24 bits, fixed point         alphas      8 bits, opacity
    colours     3 x 8 bits, 0.15 f_dc + 0.5      scales      3 x 8 bits, 16 (log + 10)
    rotations   32 bits, the three smallest      harmonics   8 bits, 128 (f_rest + 1), coefficient by coefficient

Our own code, for no package fits: `spz` has wheels for Python 3.13 alone, `gsply` brings numba, and `gaussforge` fixes 12 fractional bits,
so that a Gaussian beyond 2 048 m breaks the file, and leaves the axes as they are. The comment of gzip holds the notes.
"""

import math
import struct
import zlib

import numpy as np
import torch
from torch import Tensor

from nurec_lite.output.interchange.flatten import PlainGaussians
from nurec_lite.output.interchange.notes import MADE, Notes

UP = "y"  # of the format, where nothing else is asked for
_MAGIC, _VERSION = 0x5053474E, 3
_MOST_BITS = 12  # after the point: a quarter of a millimetre
_GZIP = b"\x1f\x8b\x08\x10" + bytes(4) + b"\x00\xff"  # deflate, with a comment, without a time


def spz_bytes(
    g: PlainGaussians,  # as `without_broken` leaves them
    notes: Notes,
) -> bytes:
    """The content of the file."""
    bits = _fractional_bits(g.means)
    degree = math.isqrt(g.sh.shape[1]) - 1
    header = struct.pack("<IIIBBBB", _MAGIC, _VERSION, len(g), degree, bits, 0, 0)
    arrays = (
        _fixed(g.means, bits), _bytes(torch.sigmoid(g.opacity_logits) * 255), _bytes((0.15 * g.sh[:, 0] + 0.5) * 255),
        _bytes(16 * (g.log_scales + 10)), _smallest_three(g.quats), _bytes(128 * (g.sh[:, 1:] + 1)),
    )  # fmt: skip
    return _gzip(header + b"".join(array.tobytes() for array in arrays), notes)


def is_spz(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as ours do."""
    return head.startswith(_GZIP) and MADE.encode() in head[len(_GZIP) :].partition(b"\0")[0]


def _fractional_bits(means: Tensor) -> int:
    """Bits after the point that let the farthest coordinate fit."""
    farthest = float(means.abs().max()) if len(means) else 0.0
    return max(0, min(_MOST_BITS, 22 - math.ceil(math.log2(max(farthest, 1.0) + 1))))


def _fixed(means: Tensor, bits: int) -> np.ndarray:  # [N, 3, 3] uint8
    most = (1 << 23) - 1
    whole = (means.detach().double() * (1 << bits)).round().clamp(-most, most).to(torch.int32).cpu().numpy()
    return np.ascontiguousarray(whole.astype("<i4").view(np.uint8).reshape(-1, 3, 4)[..., :3])


def _bytes(values: Tensor) -> np.ndarray:
    return values.detach().round().clamp(0, 255).to(torch.uint8).cpu().numpy()


def _smallest_three(quats: Tensor) -> np.ndarray:  # [N] uint32
    """Index of the largest of x, y, z, w, then sign and nine bits of each other one over sqrt(1/2)."""
    q = quats.detach().cpu().double().numpy()[:, [1, 2, 3, 0]]
    largest = np.abs(q).argmax(1)
    flipped = np.take_along_axis(q, largest[:, None], 1)[:, 0] < 0
    magnitudes = np.minimum(np.floor(511 * np.abs(q) * math.sqrt(2) + 0.5), 511).astype(np.uint32)
    packed = largest.astype(np.uint32)
    for i in range(4):
        with_one = packed << 10 | ((q[:, i] < 0) ^ flipped).astype(np.uint32) << 9 | magnitudes[:, i]
        packed = np.where(largest == i, packed, with_one)
    return packed.astype("<u4")


def _gzip(data: bytes, notes: Notes) -> bytes:
    """RFC 1952, with the notes as its comment."""
    comment = "\n".join(notes.lines()).encode("latin-1", "replace") + b"\0"
    packer = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    end = struct.pack("<II", zlib.crc32(data), len(data) & 0xFFFFFFFF)
    return _GZIP + comment + packer.compress(data) + packer.flush() + end
