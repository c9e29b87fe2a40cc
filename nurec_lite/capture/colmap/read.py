# SPDX-License-Identifier: Apache-2.0
"""Reads a reconstruction of COLMAP (https://colmap.github.io) as a capture: cameras, and points where surfaces are.

Each image keeps its pose. Its time comes from its name. The world is turned so that z points up.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor

from nurec_lite.capture.choice import chosen_drive, chosen_sensors
from nurec_lite.capture.colmap.lenses import camera_of
from nurec_lite.capture.colmap.model import REMEDY, Lens, Shot, read_cameras, read_points, read_shots, table_of
from nurec_lite.capture.colmap.names import RATE, Stamped, cameras_by_name, stamped
from nurec_lite.capture.colmap.rig import Posed, leading, mountings, upright
from nurec_lite.capture.downscale import downscaled
from nurec_lite.capture.images import ImageFile
from nurec_lite.capture.types import Capture, CaptureError, Doubt, ImageFrame
from nurec_lite.geometry.se3 import invert, pose_matrix, transform
from nurec_lite.geometry.tracks import Tracks

IMAGES = "images"
FEW = 2.0  # images of a camera; with fewer, each image has a camera of its own


@dataclass(frozen=True, eq=False)
class Model:
    """Contents of a reconstruction, its poses in metres in its own world."""

    folder: Path
    images: Path  # folder
    lenses: dict[int, Lens]
    shots: list[Shot]
    absent: int  # images without a file
    poses: Tensor  # [n, 4, 4] T_world_cam
    cameras: dict[str, list[int]]  # places of the images of each
    stamps: Stamped


def read_colmap(
    root: Path,  # of a reconstruction, or of a project that holds images and sparse
    *,
    drive: str | None = None,  # one of several reconstructions
    cameras: Sequence[str] | None = None,  # None: all
    lidars: Sequence[str] | None = None,  # there are none
    downscale: int = 1,
    rate: float | None = None,  # images a second of each camera; None: names hold Unix times, or 10
    unit: float = 1.0,  # metres of a unit of the reconstruction
) -> Capture:
    chosen_sensors("data.lidars", lidars, (), root)
    model = _open(root, drive, rate, unit)
    names = chosen_sensors("data.cameras", cameras, model.cameras, model.folder)
    rows = {name: _in_order(model, own) for name, own in model.cameras.items()}
    T_world_old = upright({name: _posed(model, own) for name, own in rows.items()})
    posed = {name: _posed(model, own, T_world_old) for name, own in rows.items()}
    mounted = mountings(posed)
    where = table_of(model.folder, "cameras")
    lenses = {name: model.lenses[model.shots[rows[name][0]].camera] for name in names}
    sensors = [camera_of(lens, name, mounted[name], where) for name, lens in lenses.items()]
    return Capture(
        name=f"colmap_{_title(root)}",
        cameras=tuple(downscaled(camera, downscale) for camera in sensors),
        lidars=(),
        images=tuple(
            f for name in names for f in _images(model, name, rows[name], posed[name], mounted[name], downscale)
        ),
        sweeps=(),
        tracks=Tracks.empty(),
        doubts=tuple(_doubts(model, leading(posed))),
        points=_points(model.folder, unit, T_world_old),
    )


def _title(root: Path) -> str:
    name = root.absolute().name
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() and len(name) < 40 else "model"


def _open(root: Path, drive: str | None, rate: float | None, unit: float) -> Model:
    folder = _find(root, drive)
    cameras, images = table_of(folder, "cameras"), table_of(folder, "images")
    assert cameras is not None and images is not None
    lenses, shots = read_cameras(cameras), read_shots(images)
    if not shots:
        raise CaptureError(f"{images} has no image; {REMEDY}")
    lost = next((shot for shot in shots if shot.camera not in lenses), None)
    if lost is not None:
        raise CaptureError(f"{images}: an image is of camera {lost.camera}, which {cameras.name} lacks; {REMEDY}")
    used = len({shot.camera for shot in shots})
    if used > 1 and len(shots) < FEW * used:
        raise CaptureError(
            f"{cameras} has a camera of its own for each image; let the images of a camera share one, by colmap "
            "feature_extractor --ImageReader.single_camera_per_folder 1"
        )
    below = _images_folder(root, folder)
    there = [shot for shot in shots if os.path.isfile(below / shot.name)]
    if not there:
        raise CaptureError(f"{below} holds none of the {len(shots)} images of {images}; put them there")
    q, t = (torch.tensor([getattr(s, k) for s in there], dtype=torch.float64) for k in ("quaternion", "translation"))
    poses = invert(pose_matrix(q / q.norm(dim=1, keepdim=True), unit * t))
    by_name = cameras_by_name(there)
    stamps = stamped(there, by_name, rate, images)
    return Model(folder, below, lenses, there, len(shots) - len(there), poses, by_name, stamps)


def _find(root: Path, drive: str | None) -> Path:
    if not os.path.isdir(root):
        problem = "is no folder" if os.path.lexists(root) else "does not exist"
        raise CaptureError(
            f"{root} {problem}; data.root must be the folder of a reconstruction, or the one above its images"
        )
    places = [
        root,
        root / "sparse",
        *(
            path
            for top in (root, root / "sparse", root / "colmap/sparse")
            if top.is_dir()
            for path in sorted(top.iterdir())
        ),
    ]
    known = {path.name: path for path in places if table_of(path, "cameras") and table_of(path, "images")}
    if not known:
        raise CaptureError(
            f"{root} holds no reconstruction, cameras and images as .bin or .txt, here or in sparse/0; correct data.root"
        )
    return (
        known[root.name]
        if drive is None and known.get(root.name) == root
        else chosen_drive(known, drive, root, "reconstructions")
    )


def _images_folder(root: Path, folder: Path) -> Path:
    places = [
        place / IMAGES for place in (root, folder, folder.parent, folder.parent.parent, folder.parent.parent.parent)
    ]
    return next((place for place in places if place.is_dir()), places[0])


def _in_order(model: Model, rows: list[int]) -> list[int]:
    """Places of a camera's images among all, in time order."""
    own = sorted(rows, key=lambda k: model.stamps.times[k])
    for a, b in pairwise(own):
        if model.stamps.times[a] == model.stamps.times[b]:
            raise CaptureError(
                f"{model.images}: {model.shots[a].name[:80]} and {model.shots[b].name[:80]} are of one camera and one time; "
                "name images of a camera by different numbers"
            )
    return own


def _posed(model: Model, rows: list[int], T_new_old: Tensor | None = None) -> Posed:
    times = torch.tensor([model.stamps.times[k] for k in rows], dtype=torch.float64)
    return Posed(times, model.poses[rows] if T_new_old is None else T_new_old @ model.poses[rows])


def _images(
    model: Model, name: str, rows: list[int], posed: Posed, T_rig_cam: Tensor, downscale: int
) -> list[ImageFrame]:
    lens = model.lenses[model.shots[rows[0]].camera]
    size = (lens.width, lens.height)
    loads = [ImageFile(model.images / model.shots[k].name, size, downscale, "the reconstruction") for k in rows]
    loads[0].check()
    poses = posed.T_world_cam @ invert(T_rig_cam)
    return [
        ImageFrame(name, model.stamps.numbers[k], time, time, pose, pose, load)
        for k, time, pose, load in zip(rows, posed.times.tolist(), poses, loads, strict=True)
    ]


def _points(folder: Path, unit: float, T_world_old: Tensor) -> Tensor | None:  # [n, 3] metres, world
    path = table_of(folder, "points3D")
    found = torch.tensor(read_points(path) if path else [], dtype=torch.float64).view(-1, 3)
    return transform(T_world_old, unit * found) if len(found) else None


def _doubts(model: Model, lead: str) -> list[Doubt]:
    found = []
    if model.stamps.guessed:
        said = f"Names of images hold no times, so that {RATE:g} images a second of each camera are assumed."
        found.append(Doubt(lead, False, said, "give data.rate"))
    if model.absent:
        images, are = ("image", "is") if model.absent == 1 else ("images", "are")
        said = f"{model.absent} {images} of the reconstruction {are} not in {model.images.name}."
        found.append(Doubt(model.images.name, False, said, "put them there"))
    return found
