# SPDX-License-Identifier: Apache-2.0
"""Ways to break the tiny drive, and the expected end: one sentence that names the file or the key and the remedy."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kitti_drive import DRIVE

from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.types import Capture, CaptureError

Damage = Callable[[Path], object]  # of the drive under this root
BIN, PNG = "velodyne_points/data/0000000000.bin", "image_02/data/0000000000.png"


def put(path: str, content: str | bytes) -> Damage:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda root: (root / DRIVE / path).write_bytes(data)


def change(path: str, old: str, new: str) -> Damage:
    def damage(root: Path) -> None:
        text = (root / DRIVE / path).read_text()
        assert old in text
        (root / DRIVE / path).write_text(text.replace(old, new, 1))

    return damage


def cut(path: str, n: int = 5) -> Damage:
    return lambda root: (root / DRIVE / path).write_bytes((root / DRIVE / path).read_bytes()[:-n])


def remove(path: str) -> Damage:
    return lambda root: (root / DRIVE / path).unlink()


def folder(path: str) -> Damage:
    return lambda root: (remove(path)(root), (root / DRIVE / path).mkdir())


def copy(path: str, name: str) -> Damage:
    return lambda root: (root / DRIVE / path).with_name(name).write_bytes((root / DRIVE / path).read_bytes())


def refusals(*cases: tuple[Damage, str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("damage", "message"), cases, ids=[message for _, message in cases])


def load(root: Path, **choice: object) -> Capture:
    """The capture with every frame decoded once."""
    capture = read_kitti_raw(root, **choice)
    for frame in (*capture.images, *capture.sweeps):
        frame.load()
    return capture


def check(root: Path, damage: Damage, message: str) -> None:
    damage(root)
    with pytest.raises(CaptureError, match=message) as caught:
        load(root)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 600
