# SPDX-License-Identifier: Apache-2.0
"""A sweep comes back within the stated steps; values of no lidar are refused."""

import lzma
import math
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mutations import bounded_memory
from pack_parts import check_sweep, make_sweep, same_fields
from torch import Tensor

from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.pack import sweep as pack_sweep
from nurec_lite.capture.pack.sweep import decode_sweep, encode_sweep
from nurec_lite.capture.types import CaptureError
from nurec_lite.geometry.lidar import Sweep, unit_directions


@given(n=st.sampled_from([0, 1, 2, 31, 1000]), n_rings=st.sampled_from([1, 2, 128]), seed=st.integers(0, 5))
def test_sweep_round_trip(n: int, n_rings: int, seed: int) -> None:
    sweep = make_sweep(n, n_rings, seed)
    check_sweep(sweep, decode_sweep(encode_sweep(sweep), "sweep"))


def test_sweep_without_returns() -> None:
    sweep = make_sweep(20)
    silent = replace(sweep, returned=torch.zeros(20).bool(), ranges=torch.zeros(20), intensities=torch.zeros(20))
    check_sweep(silent, decode_sweep(encode_sweep(silent), "sweep"))


def test_regular_sweep_is_small() -> None:
    """A spinning lidar's ring, azimuth and time cost nearly nothing, whichever way its rays are ordered."""
    ring, column = torch.meshgrid(torch.arange(32), torch.arange(500), indexing="ij")
    azimuth = math.pi - column.double() * (2 * math.pi / 500)
    n = azimuth.numel()
    sweep = Sweep(
        unit_directions(torch.stack([azimuth, 0.1 - 0.01 * ring], dim=-1)).flatten(0, 1).float(), torch.full((n,), 9.0),
        torch.full((n,), 0.5), 5 + (column * 2e-4).flatten().double(), ring.flatten(), torch.ones(n).bool(),
    )  # fmt: skip
    for order in (torch.arange(n), torch.arange(n).view(32, 500).T.flatten()):
        assert len(encode_sweep(sweep.select(order))) < 0.25 * n


def test_kitti_sweep_round_trip(kitti_root: Path) -> None:
    sweep = read_kitti_raw(kitti_root, frames=(7, 8)).sweeps[0].load()
    data = encode_sweep(sweep)
    assert len(data) < 300_000  # 51 of them, and 102 images at quality 95, stay below 50 MB
    check_sweep(sweep, decode_sweep(data, "sweep"))


# ---- sweeps that no lidar made


def body(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    return data[:32] + zlib.compress(change(zlib.decompress(data[32:])))


def first_version(data: bytes) -> bytes:
    return data[:32] + lzma.compress(zlib.decompress(data[32:]), format=lzma.FORMAT_RAW, filters=pack_sweep._FILTERS)


def test_sweeps_of_the_first_packs() -> None:
    for n in (0, 1, 500):
        data = encode_sweep(make_sweep(n))
        same_fields(decode_sweep(data, "sweep"), decode_sweep(first_version(data), "sweep"))
    old, bomb = first_version(data), first_version(body(data, lambda b: b + b"0" * 10**8))
    for damaged in (old[:-1], old + b"0", bomb):
        with bounded_memory(64 << 20), pytest.raises(CaptureError, match="bytes where"):
            decode_sweep(damaged, "sweep")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d + b"0", r"bytes where"),
        (lambda d: d[:-1], r"bytes where|cannot be decoded"),
        (lambda d: d[:20], r"buffer is smaller|cannot be decoded"),
        (lambda d: body(d, lambda b: b + b"0" * 10**8), r"bytes where"),
        (lambda d: body(d, lambda b: b[:-1]), r"bytes where"),
        (lambda d: body(d, lambda b: b"\x80" + b[1:]), r"ring goes from"),
        (lambda d: struct.pack("<q", 1 << 40) + d[8:], r"1099511627776 rays with"),
        (lambda d: struct.pack("<qq", 20, 21) + d[16:], r"20 rays with 21 returns"),
        (lambda d: d[:16] + struct.pack("<dd", math.nan, 0) + d[32:], r"a time of nan s"),
    ],
)
def test_broken_sweep(change: Callable[[bytes], bytes], message: str) -> None:
    data = change(encode_sweep(make_sweep(20)))
    with bounded_memory(64 << 20), pytest.raises(CaptureError, match=message):
        decode_sweep(data, "sweep", beams=16)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"ranges": torch.full((20,), math.nan)}, "not finite"),
        ({"ranges": torch.full((20,), 3e38)}, "range goes from"),
        ({"ranges": torch.ones(20), "intensities": torch.full((20,), 1.5)}, "intensity goes from"),
        ({"rings": torch.full((20,), 16)}, "ring goes from"),
        ({"times": torch.zeros(21).double()}, "differ in length"),
    ],
)
def test_sweep_that_cannot_be_stored(values: dict[str, Tensor], message: str) -> None:
    sweep = replace(make_sweep(20), returned=torch.ones(20).bool(), **values)
    with pytest.raises(CaptureError, match=rf"^top 3 cannot be stored \(.*{message}"):
        encode_sweep(sweep, "top 3", beams=16)
