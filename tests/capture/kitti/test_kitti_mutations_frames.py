# SPDX-License-Identifier: Apache-2.0
"""400 damaged sweeps and images of KITTI, and drives with one damaged file: refused by one sentence with the file and a remedy, or their
content makes sense."""

import io
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from kitti_drive import (
    DRIVE,
    TRACKLETS,
    points_of,
    ring_angles,
    write_drive,
)
from mutations import bounded_memory, folder_of, hundreds, mutated, mutated_text, overwrite, read_or_refuse
from PIL import Image

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.images import ImageFile
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.kitti.scan import Scan
from nurec_lite.capture.kitti.survey import survey
from nurec_lite.capture.kitti.sweeps import SweepFile
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.lidar import Sweep


@pytest.fixture(autouse=True)
def memory() -> Iterator[None]:
    with bounded_memory(300 << 20):
        yield


# ---- sweeps and images

SWEEP = points_of(ring_angles(n_beams=6, steps=9)[0]).numpy().astype("<f4").tobytes()
PIXELS = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)


@hundreds
@given(mutated(SWEEP))
def test_sweep(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = folder_of(tmp_path_factory, "sweeps") / "0000000000.bin"
    overwrite(path, data)
    read = read_or_refuse(lambda: read_sweep(path), path.name)
    if read is not None:
        scan, sweep = read
        assert 1 <= len(scan.elevations) <= 64 and (scan.elevations.abs() <= math.pi / 2).all()
        start = 7 - scan.forward_fraction * 0.1
        check_sweep(sweep, start, start + 0.1)


def read_sweep(path: Path) -> tuple[Scan, Sweep]:
    scan = survey([path])
    return scan, SweepFile(path, scan, 7.0, 0.1)()


def check_sweep(sweep: Sweep, start: float, end: float) -> None:
    assert torch.allclose(sweep.directions.norm(dim=1), torch.ones(len(sweep)), atol=1e-5)
    assert ((sweep.ranges > 0) == sweep.returned).all() and (sweep.ranges <= 250).all()
    assert ((sweep.intensities >= 0) & (sweep.intensities <= 1)).all()
    assert ((sweep.times >= start - 1e-6) & (sweep.times <= end + 1e-6)).all()
    assert (sweep.rings.diff() >= 0).all() and ((sweep.rings >= 0) & (sweep.rings < 64)).all()


def picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, kind)
    return file.getvalue()


def with_checksums(png: bytes) -> bytes:
    """The chunks that are still whole, with checksums of their present content: such damage goes deeper into the decoder."""
    place, result = 8, png[:8]
    while place + 12 <= len(png):
        end = place + 8 + int.from_bytes(png[place : place + 4], "big")
        body = png[place + 4 : end]
        result += png[place:end] + struct.pack(">I", zlib.crc32(body))
        place = end + 4
    return result


def images() -> SearchStrategy[bytes]:
    png = mutated(picture("PNG"))
    return png | png.map(with_checksums) | mutated(picture("JPEG"))


@hundreds
@given(images())
def test_image(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = folder_of(tmp_path_factory, "images") / "0000000000.png"
    overwrite(path, data)
    image = read_or_refuse(ImageFile(path, (12, 8)), path.name)
    assert image is None or (image.shape == (8, 12, 3) and image.dtype == torch.uint8)


@hundreds
@given(mutated(picture("PNG")))
def test_png_is_refused_or_read_unchanged(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = folder_of(tmp_path_factory, "images") / "0000000001.png"
    overwrite(path, data)
    image = read_or_refuse(ImageFile(path, (12, 8)), path.name)
    assert image is None or torch.equal(image, torch.from_numpy(PIXELS))


# ---- the whole drive


def test_drive(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One damaged file among all of a drive."""
    root = write_drive(tmp_path_factory.mktemp("root"), n_beams=6, steps=9)
    (root / DRIVE / "tracklet_labels.xml").write_text(TRACKLETS)
    files = {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*.*")) if path.is_file()}
    strategies = [st.tuples(st.just(name), damaged(name, data)) for name, data in files.items()]

    @hundreds
    @given(st.one_of(strategies))
    def check(damaged: tuple[str, bytes]) -> None:
        name, data = damaged
        overwrite(root / name, data)
        try:
            capture = read_or_refuse(lambda: load(root), Path(name).name)
        finally:
            overwrite(root / name, files[name])
        if capture is not None:
            check_capture(capture, name)

    check()


def damaged(name: str, data: bytes) -> SearchStrategy[bytes]:
    return mutated(data) if name.endswith((".bin", ".png")) else mutated_text(data)


def load(root: Path) -> Capture:
    capture = read_kitti_raw(root)
    for image in capture.images:
        assert image.load().shape == (8, 12, 3)
    for sweep in capture.sweeps:
        check_sweep(sweep.load(), sweep.time_start, sweep.time_end)
    return capture
