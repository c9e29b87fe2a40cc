# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a pack, it is read as it was, or refused with a sentence: thousands of damaged ones."""

import copy
import io
import json
import lzma
import random
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from mutations import bounded_memory, mutated, read_or_refuse
from pack_parts import Held, make_capture, make_sweep, same_fields

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.pack import read_pack, write_pack
from nurec_lite.capture.pack import sweep as pack_sweep
from nurec_lite.capture.pack.sweep import decode_sweep, encode_sweep
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.tracks import interpolate

BEAMS = 16
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


def tiny() -> Capture:
    """Three images of each camera, three sweeps, two tracks."""
    capture = make_capture()
    return replace(
        capture,
        images=tuple(frame for frame in capture.images if frame.index < 3),
        sweeps=tuple(replace(f, load=Held(make_sweep(50, BEAMS, f.index))) for f in capture.sweeps[:3]),
    )


def packed() -> bytes:
    with TemporaryDirectory() as folder:
        write_pack(tiny(), Path(folder) / "drive.pack", image_format="png")
        return (Path(folder) / "drive.pack").read_bytes()


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


@settings(max_examples=2000)
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


@settings(max_examples=2000)
@given(data=mutated(SWEEP) | mutated(first_version(PLAIN_SWEEP)) | mutated(PLAIN_SWEEP).map(compressed))
def test_mutated_sweep(data: bytes) -> None:
    sweep = read_or_refuse(lambda: decode_sweep(data, "drive.pack: sweep", BEAMS), "drive.pack: sweep")
    if sweep:
        sane_sweep(sweep)


# ---- capture.json

DEEP = "(deep)"  # json.dumps cannot write what json.loads must not crash on
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-320, 1e30, 1e308, 10**9, 10**30, 10**400, -(2**63)),
    *(float("nan"), float("inf"), -float("inf"), "", "x", "front", "top", "a\nb", "\ud800", "é" * 3, "x" * 10**5, "../x"),
    *([], {}, [[]], [0], [[0.0] * 4] * 4, [None], {"name": "front"}, DEEP, "png", "side", "images/front/000001.png"),
]  # fmt: skip


def mutate_index(index: Any, rng: random.Random) -> Any:
    """A value somewhere in the tree is replaced, removed, doubled, added, exchanged, nested, or a little different."""
    holder, key = rng.choice(list(places(index)))
    kind = rng.choice(("replace", "replace", "replace", "remove", "double", "add", "exchange", "nest", "scale", "copy"))
    if kind == "replace":
        holder[key] = rng.choice(VALUES)
    elif kind == "remove":
        del holder[key]
    elif kind == "double" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == "add":
        holder[key] = {**holder[key], "more": 1} if isinstance(holder[key], dict) else [holder[key], 1]
    elif kind == "exchange" and isinstance(holder, list):
        other = rng.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif kind == "nest":
        holder[key] = [holder[key]]
    elif kind == "scale" and isinstance(holder[key], (int, float)):
        holder[key] *= rng.choice((-1, 0.999, 1.5, 1000, 1e18))
    elif kind == "copy":
        source, name = rng.choice(list(places(index)))
        holder[key] = copy.deepcopy(source[name])
    return index


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key; those of long lists of numbers count for a few."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from islice(places(value[key]), None if isinstance(value[key], dict) or len(value[key]) > 4 else 6)


def mutated_index() -> SearchStrategy[bytes]:
    """A pack whose capture.json is 1 to 3 mutations away from a valid one; its CRC is right."""
    with zipfile.ZipFile(io.BytesIO(PACKED)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}

    def apply(count: int, seed: int) -> bytes:
        index, rng = json.loads(members["capture.json"]), random.Random(seed)
        for _ in range(count):
            index = mutate_index(index, rng)
        text = json.dumps(index).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, text if name == "capture.json" else data)
        return buffer.getvalue()

    return st.builds(apply, st.integers(1, 3), st.integers(0, (1 << 62) - 1))


@settings(max_examples=2000)
@given(data=mutated_index())
def test_mutated_index(folder: Path, data: bytes) -> None:
    path = folder / "mutated.pack"
    path.write_bytes(data)
    result = read_or_refuse(lambda: read_all(path), path.name)
    if result:
        sane(*result)
