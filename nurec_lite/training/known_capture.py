# SPDX-License-Identifier: Apache-2.0
"""Whether the capture that is opened for a checkpoint is the one that it was made from."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from nurec_lite.base.key_values import assigned
from nurec_lite.base.texts import printable
from nurec_lite.capture.difference import Asked, differences, pose_differences
from nurec_lite.capture.digest import Digest, SensorFrames, digest_of
from nurec_lite.capture.looks import Key, look_of, looks_of
from nurec_lite.capture.sensor_difference import Difference
from nurec_lite.capture.track_difference import track_differences
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame, Origin, SweepFrame
from nurec_lite.config import DataConfig
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.readers import Known
from nurec_lite.training.capture_record import digest_from, path_from
from nurec_lite.training.checkpoint import CheckpointError, tracks_of

log = logging.getLogger("nurec_lite")


def known_of(
    content: dict[str, Any],  # of the checkpoint
) -> Known:
    """Poses and tracks of a checkpoint. An older one has no poses: these are found again."""
    return Known(tracks_of(content["scene"]), path_from(content.get("capture", {})))


def check_known_capture(
    path: Path,
    content: dict[str, Any],  # of the checkpoint
    capture: Capture,
    data: DataConfig,  # that the capture was opened with
    exact: bool = False,  # for a run that goes on: all frames as they were
    memory: bool = False,  # a caller gave the capture: no key changes it
) -> Digest:
    """Returns the digest of the capture. CheckpointError if the scene cannot belong to it; any other difference is a warning."""
    if "capture" not in content:
        log.info("%s was written by an older version: whether the capture is the same is not known", path)
        _check_origin(path, content["scene"], capture)
        _check_counts(path, content["scene"], capture)
        return digest_of(capture, looks_of(capture))
    _check_origin(path, content["scene"], capture)
    known, found = digest_from(content["capture"]), digest_of(capture, {})
    stored = content["config"].get("data", {})
    asked, tracks = Asked(exact=True) if exact else _asked(stored, data), Tracks(**content["scene"]["tracks"])
    different = list(_all_differences(known, found, tracks, capture, asked))
    certain = [one for one in different if one.certain]
    if certain:
        more = f" (and {len(certain) - 1} more)" if len(certain) > 1 else ""
        remedy = _given(stored) if memory else certain[0].remedy or _remedy(stored, data)
        raise CheckpointError(f"{path} was made from another capture: {certain[0].sentence}{more}; {remedy}")
    if different:
        said = "; ".join(one.sentence for one in different)
        log.warning("%s differs from the capture that %s was made from: %s", capture.name, path, printable(said))
    return replace(found, frames={name: _with_looks(name, known, found) for name in found.frames})


def _all_differences(
    known: Digest, found: Digest, tracks: Tracks, capture: Capture, asked: Asked
) -> Iterator[Difference]:
    frames: dict[Key, ImageFrame | SweepFrame] = {(f.sensor, f.index): f for f in capture.images}
    frames |= {(f.sensor, f.index): f for f in capture.sweeps}

    def look(sensor: str, index: int) -> Tensor:
        frame = frames[sensor, index]
        return look_of(frame, frame.load())

    yield from differences(known, found, look, asked)
    part = trajectory_of(capture).span if asked.frames else None
    yield from track_differences(tracks, capture.tracks, part, any(pose_differences(known, found)))


def _asked(stored: dict[str, Any], data: DataConfig) -> Asked:
    """Returns the keys that change a capture, where they differ from those of training."""
    was = {
        name: stored.get(name, getattr(DataConfig(), name))
        for name in ("downscale", "frames", "without", "image_delay")
    }
    return Asked(
        downscale=(was["downscale"], data.downscale),
        frames=(was["frames"], was["without"] or []) != (data.frames, data.without or []),
        image_delay=was["image_delay"] != data.image_delay,
    )


def _given(stored: dict[str, Any]) -> str:
    """Returns the remedy for a capture that a caller gave. A run of a capture in memory knows no files."""
    files = stored.get("kind") != "pack" or stored.get("root") is not None
    return "give the capture that was trained on" + (", or leave `capture` out to read its files" if files else "")


def _remedy(stored: dict[str, Any], data: DataConfig) -> str:
    """The files that training named, if others are named now."""
    keys = {
        "data.root": (stored.get("root"), data.root),
        "data.poses.file": ((stored.get("poses") or {}).get("file"), data.poses.file),
        "data.tracks.file": ((stored.get("tracks") or {}).get("file"), data.tracks.file),
    }
    kind = [assigned("data", stored["kind"])] if stored.get("kind") not in (None, data.kind) else []
    given = [*kind, *(assigned(key, was) for key, (was, now) in keys.items() if was != now)]
    if given:
        return f"it was made with {' '.join(given)}: give that, or train again"
    return "restore its capture, or train again"


def _with_looks(name: str, known: Digest, found: Digest) -> SensorFrames:
    """The looks are those of training: the frames were found to be the same."""
    frames = found.frames[name]
    if name not in known.frames:
        return frames
    return replace(frames, looked=known.frames[name].looked, looks=known.frames[name].looks)


# ---- differences that every checkpoint can show


def _check_origin(path: Path, scene: dict[str, Any], capture: Capture) -> None:
    x, y, z = scene.get("origin", (0.0, 0.0, 0.0))  # older files have none
    if (x, y, z) != capture.origin:
        raise CheckpointError(
            f"{path} was made about the origin {_place((x, y, z))}, but {capture.name} begins at {_place(capture.origin)}; "
            "give the data.* it was made with"
        )


def _check_counts(path: Path, scene: dict[str, Any], capture: Capture) -> None:
    cameras, ids = len(scene["parameters"]["exposure"]), scene["tracks"]["ids"]
    if ids != capture.tracks.ids or cameras != len(capture.cameras):
        raise CheckpointError(
            f"{path} was made from a capture with {cameras} cameras and {len(ids)} tracks, but "
            f"{capture.name} has {len(capture.cameras)} and {len(capture.tracks)} others; give the data.* it was made with"
        )


def _place(origin: Origin) -> str:
    return ", ".join(f"{metres:g}" for metres in origin) + " m"


def fresh_digest(capture: Capture) -> Digest:
    """The digest for a new run with its scene made: the sampled frames were decoded then."""
    return digest_of(capture, looks_of(capture))
