# SPDX-License-Identifier: Apache-2.0
"""A drive of 447 frames: while its scene is made, a few decoded sweeps and images are alive at a time, and a bounded number is decoded."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import kitti_drive
import numpy as np
import torch
from long_drive import long_drive

from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.types import Capture, Frame
from nurec_lite.config import ModelConfig
from nurec_lite.scene.init import make_scene
from nurec_lite.scene.looked_at import MOST

FRAMES = 447
MODEL = ModelConfig(points=200, raised_points=20, far_points=20)


@dataclass
class Alive:
    """Counts decoded frames that somebody holds."""

    now: int = 0
    most: int = 0
    decoded: set[tuple[str, int]] = field(default_factory=set)

    def counted(self, frame: Frame) -> Frame:
        load: Callable[[], Any] = frame.load  # type: ignore[attr-defined]

        def loaded() -> Any:
            value = load()
            self.now += 1
            self.most = max(self.most, self.now)
            self.decoded.add((frame.sensor, frame.index))
            weakref.finalize(value, self.gone)
            return value

        return replace(frame, load=loaded)  # type: ignore[call-arg]

    def gone(self) -> None:
        self.now -= 1


def drive(folder: Path) -> Capture:
    kitti_drive.write_drive(folder / "short", n_beams=16, steps=60)
    rows = [[1, 0, 0, 0.5 * i, 0, 1, 0, 0, 0, 0, 1, 0] for i in range(kitti_drive.N_FRAMES)]
    np.savetxt(folder / "rows.txt", rows)
    poses = long_drive(folder / "short", folder / "rows.txt", folder / "long", FRAMES)
    return read_kitti_raw(folder / "long", poses_file=poses, cameras=("image_02",)).with_split("interp")


def test_a_drive_of_447_frames_holds_a_few_of_them_at_a_time(tmp_path: Path) -> None:
    alive, capture = Alive(), drive(tmp_path)
    images, sweeps = (tuple(map(alive.counted, frames)) for frames in (capture.images, capture.sweeps))
    scene = make_scene(replace(capture, images=images, sweeps=sweeps), MODEL, 0, torch.device("cpu"))  # type: ignore[arg-type]
    assert len(capture.sweeps) == FRAMES and len(scene.gaussians) > 100
    seen = sorted(index for sensor, index in alive.decoded if sensor == "velodyne")
    assert len(seen) == MOST and seen[0] < 5 and seen[-1] >= FRAMES - 5
    assert max(b - a for a, b in pairwise(seen)) <= 1.3 * FRAMES / MOST
    assert 2 <= alive.most <= 8 * (2 * torch.get_num_threads() + 1)
