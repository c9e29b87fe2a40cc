# SPDX-License-Identifier: Apache-2.0
"""Opens the capture that a configuration names."""

from pathlib import Path
from typing import Any

from nurec_lite.capture.kitti_raw import read_kitti_raw
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.config import DataConfig
from nurec_lite.paths import resource

BUNDLED = "data/street.pack"


def open_capture(config: DataConfig) -> Capture:
    """The capture with its split; CaptureError with the remedy if it cannot be read."""
    if config.kind == "bundled":
        if config.root is not None:
            raise CaptureError(f"data.root={config.root} goes with data=pack or data=kitti_raw; name one of them too")
        capture = read_pack(resource(BUNDLED), downscale=config.downscale)
    elif config.kind == "pack":
        if config.root is None:
            raise CaptureError("data.root is missing: name the pack, as in data.root=FILE")
        capture = read_pack(Path(config.root), downscale=config.downscale)
    elif config.kind == "kitti_raw":
        capture = _open_kitti(config)
    else:
        raise CaptureError(f"data.kind is '{config.kind}', but must be bundled, pack or kitti_raw")
    return capture.with_split(config.split)


def _open_kitti(config: DataConfig) -> Capture:
    if config.root is None:
        raise CaptureError("data.root is missing: name the folder that holds the drive's date, as in data.root=PATH")
    named: dict[str, Any] = {"cameras": tuple(config.cameras)} if config.cameras else {}
    return read_kitti_raw(
        Path(config.root),
        date=config.date,
        drive=config.drive,
        downscale=config.downscale,
        frames=(config.frames[0], config.frames[1]) if config.frames else None,
        poses_file=Path(config.poses.file) if config.poses.file else None,
        tracks_file=Path(config.tracks.file) if config.tracks.file else None,
        image_delay=config.image_delay,
        **named,
    )
