# SPDX-License-Identifier: Apache-2.0
"""Any change of a pack is refused with a sentence, or it is read as it was: thousands of damaged packs."""

import lzma
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from mutations import bounded_memory, mutated, read_or_refuse
from pack_mutations import BEAMS, index_of, mutate_index, packed, with_index
from pack_parts import make_sweep, same_fields

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.pack import sweep as pack_sweep
from nurec_lite.capture.pack.sweep import decode_sweep, encode_sweep
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.tracks import interpolate

HEADER = pack_sweep._HEADER.itemsize
SWEEP = encode_sweep(make_sweep(50, BEAMS))
PLAIN_SWEEP = SWEEP[:HEADER] + zlib.decompress(SWEEP[HEADER:])


@pytest.fixture(scope="module", autouse=True)
def memory() -> Iterator[None]:
    with bounded_memory(300 << 20):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutations")


PACKED = packed()


def read_all(path: Path) -> tuple[Capture, list[torch.Tensor], list[Sweep]]:
    capture = read_pack(path)
    return capture, [frame.load() for frame in capture.images], [frame.load() for frame in capture.sweeps]


def same(a: tuple[Capture, list[Any], list[Sweep]], b: tuple[Capture, list[Any], list[Sweep]]) -> None:
    assert a[0].name == b[0].name
    same_fields(a[0].tracks, b[0].tracks)
    for kind in ("cameras", "lidars", "images", "sweeps"):
        for x, y in zip(getattr(a[0], kind), getattr(b[0], kind), strict=True):
            same_fields(x, y)
    for i, j in zip(a[1], b[1], strict=True):
        assert torch.equal(i, j)
    for s, t in zip(a[2], b[2], strict=True):
        same_fields(s, t)


def sane_sweep(sweep: Sweep) -> None:
    assert all(bool(getattr(sweep, f).isfinite().all()) for f in Sweep.__dataclass_fields__)
    assert len({len(getattr(sweep, f)) for f in Sweep.__dataclass_fields__}) == 1
    torch.testing.assert_close(sweep.directions.norm(dim=1), torch.ones(len(sweep)))
    assert bool(((sweep.rings >= 0) & (sweep.rings < BEAMS)).all())
    assert torch.equal(sweep.returned, sweep.ranges > 0)
    assert bool(((sweep.intensities >= 0) & (sweep.intensities <= 1)).all())


def sane(capture: Capture, images: list[torch.Tensor], sweeps: list[Sweep]) -> None:
    check_capture(capture, "mutated")
    for frame, image in zip(capture.images, images, strict=True):
        camera = capture.camera(frame.sensor)
        assert image.dtype == torch.uint8 and image.shape == (camera.height, camera.width, 3)
    for sweep in sweeps:
        sane_sweep(sweep)
    poses = interpolate(capture.tracks, torch.tensor([frame.time_mid for frame in capture.images]).double())
    assert bool(poses.translations.isfinite().all()) and bool(poses.quaternions.isfinite().all())


# ---- bytes


@settings(max_examples=400)
@given(data=mutated(PACKED))
def test_mutated_bytes(folder: Path, data: bytes) -> None:
    """Read as it was, or refused: the CRC forbids all between."""
    (folder / "drive.pack").write_bytes(PACKED)
    (folder / "mutated.pack").write_bytes(data)
    result = read_or_refuse(lambda: read_all(folder / "mutated.pack"), "mutated.pack")
    if result:
        same(result, read_all(folder / "drive.pack"))


def test_every_cut(folder: Path) -> None:
    path = folder / "mutated.pack"
    for n in range(0, len(PACKED), 7):
        path.write_bytes(PACKED[:n])
        assert read_or_refuse(lambda: read_all(path), path.name) is None


def compressed(plain: bytes) -> bytes:
    return plain[:HEADER] + zlib.compress(plain[HEADER:])


def first_version(plain: bytes) -> bytes:
    return plain[:HEADER] + lzma.compress(plain[HEADER:], format=lzma.FORMAT_RAW, filters=pack_sweep._FILTERS)


@settings(max_examples=400)
@given(data=mutated(SWEEP) | mutated(first_version(PLAIN_SWEEP)) | mutated(PLAIN_SWEEP).map(compressed))
def test_mutated_sweep(data: bytes) -> None:
    sweep = read_or_refuse(lambda: decode_sweep(data, "drive.pack: sweep", BEAMS), "drive.pack: sweep")
    if sweep:
        sane_sweep(sweep)


# ---- capture.json


def mutated_index() -> SearchStrategy[bytes]:
    """A pack whose capture.json is 1 to 3 mutations away from a valid one; its CRC is right."""

    def apply(count: int, seed: int) -> bytes:
        rng, index = random.Random(seed), index_of(PACKED)
        for _ in range(count):
            index = mutate_index(index, rng)
        return with_index(PACKED, index)

    return st.builds(apply, st.integers(1, 3), st.integers(0, (1 << 62) - 1))


@settings(max_examples=400)
@given(data=mutated_index())
def test_mutated_index(folder: Path, data: bytes) -> None:
    path = folder / "mutated.pack"
    path.write_bytes(data)
    result = read_or_refuse(lambda: read_all(path), path.name)
    if result:
        sane(*result)
