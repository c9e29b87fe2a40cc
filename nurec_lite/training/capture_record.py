# SPDX-License-Identifier: Apache-2.0
"""The digest of a capture as a checkpoint stores it: plain values and tensors of their own."""

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.names import clashes
from nurec_lite.capture.check import FARTHEST, LATEST, MAX_AZIMUTH_STEPS, MAX_BEAMS, MAX_PIXELS, RIGID
from nurec_lite.capture.digest import Digest, KnownPath, SensorFrames
from nurec_lite.capture.looks import MEANS
from nurec_lite.capture.trajectory import Trajectory
from nurec_lite.capture.types import POSES_FROM
from nurec_lite.geometry.camera import SHUTTERS, Camera
from nurec_lite.geometry.lens import COEFFICIENTS
from nurec_lite.geometry.lidar import Lidar, RayTable
from nurec_lite.training.schema_values import check_keys, check_names, check_number, check_tensor, demand

MOST = 1 << 62  # bytes, checksums and numbers of frames
FAR = 2 * FARTHEST  # metres: a pose about an origin, both within bounds
SMALLEST = 1e-9  # of values above 0
LEFT_OUT = ("mask",)  # of a camera: each use of a scene chooses its masks
_NUMBERS: dict[str, tuple[float, float]] = {
    "width": (1, MAX_PIXELS), "height": (1, MAX_PIXELS), "fx": (SMALLEST, FARTHEST), "fy": (SMALLEST, FARTHEST),
    "cx": (-FARTHEST, FARTHEST), "cy": (-FARTHEST, FARTHEST), "max_range": (SMALLEST, FARTHEST),
    "azimuth_steps": (1, MAX_AZIMUTH_STEPS), "azimuth_start": (-100, 100),
}  # fmt: skip


def record_of(digest: Digest) -> dict[str, Any]:
    return {
        "name": digest.name,
        "cameras": [_plain(camera) for camera in digest.cameras],
        "lidars": [_lidar_record(lidar) for lidar in digest.lidars],
        "frames": {name: _plain(frames) for name, frames in digest.frames.items()},
        **({} if digest.path is None else {"path": _path_record(digest.path)}),
    }


def _lidar_record(lidar: Lidar) -> dict[str, Any]:
    """A lidar of rows without a table has the fields that older versions know."""
    values = _plain(lidar)
    if lidar.table is not None:
        return values | {"table": _plain(lidar.table)}
    return {name: value for name, value in values.items() if not (name == "table" or (name == "spins" and value))}


def _path_record(path: KnownPath) -> dict[str, Any]:
    return _plain(path.trajectory) | {"poses_from": path.poses_from}


def _plain(thing: object) -> dict[str, Any]:
    """Tensors are copied: a checkpoint refers to none twice, and holds nothing beyond them."""
    values = {f.name: getattr(thing, f.name) for f in fields(thing) if f.name not in LEFT_OUT}  # type: ignore[arg-type]
    return {name: value.clone().contiguous() if isinstance(value, Tensor) else value for name, value in values.items()}


def digest_from(record: dict[str, Any]) -> Digest:
    """The digest in a record that was checked."""
    return Digest(
        record["name"],
        tuple(Camera(**camera) for camera in record["cameras"]),
        tuple(_lidar_from(lidar) for lidar in record["lidars"]),
        {name: SensorFrames(**frames) for name, frames in record["frames"].items()},
        path_from(record),
    )


def _lidar_from(record: dict[str, Any]) -> Lidar:
    table = record.get("table")
    return Lidar(**record | ({} if table is None else {"table": RayTable(**table)}))


def path_from(record: dict[str, Any]) -> KnownPath | None:
    """Returns the poses in a record; None: an older version wrote it."""
    if (path := record.get("path")) is None:
        return None
    return KnownPath(Trajectory(path["times"], path["poses"]), path["poses_from"])


# ---- checks


def check_record(value: Any) -> None:
    """Raises SchemaError with the first flaw."""
    path = ("path",) if type(value) is dict and "path" in value else ()  # older files have none
    check_keys(value, "capture", ("name", "cameras", "lidars", "frames", *path))
    check_names((value["name"],), "capture.name")
    for kind, check in (("cameras", _check_camera), ("lidars", _check_lidar)):
        demand(type(value[kind]) is list, f"capture.{kind}", "a list")
        for i, sensor in enumerate(value[kind]):
            check(sensor, f"capture.{kind}[{i}]")
    known = tuple(sensor["name"] for kind in ("cameras", "lidars") for sensor in value[kind])
    check_names(known, "capture", len(known))
    demand(not any(clashes(known)), "capture", "of sensors that differ in their names")
    check_keys(value["frames"], "capture.frames", known)
    for i, name in enumerate(known):
        _check_frames(value["frames"][name], f"capture.frames[{i}]", i < len(value["cameras"]))
    if path:
        _check_path(value["path"])


def _check_path(value: Any) -> None:
    check_keys(value, "capture.path", ("times", "poses", "poses_from"))
    check_tensor(value["times"], "capture.path.times", (None,), torch.float64, -LATEST, LATEST)
    n = len(value["times"])
    rising = n > 0 and bool((value["times"].diff() > 0).all())
    demand(rising, "capture.path.times", "times that rise")
    check_tensor(value["poses"], "capture.path.poses", (n, 4, 4), torch.float64, -FAR, FAR)
    R, last = value["poses"][:, :3, :3], value["poses"][:, 3]
    flat = bool((last == last.new_tensor([0, 0, 0, 1])).all())
    rigid = float((R.transpose(1, 2) @ R - torch.eye(3, dtype=R.dtype)).abs().max()) <= RIGID
    demand(flat and rigid and bool((torch.linalg.det(R) > 0).all()), "capture.path.poses", "rotations and places")
    demand(value["poses_from"] in POSES_FROM, "capture.path.poses_from", f"one of {', '.join(POSES_FROM)}")


def _check_camera(value: Any, at: str) -> None:
    of_old = type(value) is dict and "lens" not in value  # older files have pinholes alone
    left_out = (*LEFT_OUT, *(("lens",) if of_old else ()))
    check_keys(value, at, tuple(f.name for f in fields(Camera) if f.name not in left_out))
    _check_numbers(value, at)
    check_tensor(value["T_rig_cam"], f"{at}.T_rig_cam", (4, 4), torch.float64, -FARTHEST, FARTHEST)
    model, lens = value.get("lens", "pinhole"), value["distortion"]
    demand(type(model) is str and model in COEFFICIENTS, f"{at}.lens", "the name of a lens")
    counts = COEFFICIENTS[model][1]
    demand(type(lens) is tuple and len(lens) in counts, f"{at}.distortion", f"{' or '.join(map(str, counts))} numbers")
    for one in lens:
        check_number(one, f"{at}.distortion", -FARTHEST, FARTHEST)
    demand(type(value["shutter"]) is str and value["shutter"] in SHUTTERS, f"{at}.shutter", "the name of a shutter")


def _check_lidar(value: Any, at: str) -> None:
    given = value if type(value) is dict else {}
    left_out = [name for name in ("spins", "table") if name not in given]
    check_keys(value, at, tuple(f.name for f in fields(Lidar) if f.name not in left_out))
    _check_numbers(value, at)
    check_tensor(value["T_rig_lidar"], f"{at}.T_rig_lidar", (4, 4), torch.float64, -FARTHEST, FARTHEST)
    beams = value["elevations"]
    dtype = beams.dtype if type(beams) is Tensor and beams.dtype == torch.float32 else torch.float64
    check_tensor(beams, f"{at}.elevations", (None,), dtype, -2, 2)
    demand(len(beams) <= MAX_BEAMS, f"{at}.elevations", f"those of at most {MAX_BEAMS} beams")
    for name in ("clockwise", *given.keys() & {"spins"}):
        demand(type(value[name]) is bool, f"{at}.{name}", "true or false")
    if "table" in given:
        check_keys(value["table"], f"{at}.table", tuple(f.name for f in fields(RayTable)))
        check_tensor(value["table"]["fractions"], f"{at}.table.fractions", (None,), torch.float64, 0, 1)
        rays = len(value["table"]["fractions"])
        check_tensor(value["table"]["directions"], f"{at}.table.directions", (rays, 3), torch.float32, -2, 2)


def _check_numbers(value: dict[str, Any], at: str) -> None:
    for name in value.keys() & _NUMBERS.keys():
        check_number(value[name], f"{at}.{name}", *_NUMBERS[name])


def _check_frames(value: Any, at: str, camera: bool) -> None:
    check_keys(value, at, tuple(f.name for f in fields(SensorFrames)))
    check_tensor(value["indices"], f"{at}.indices", (None,), torch.int64, 0, MOST)
    check_tensor(value["looked"], f"{at}.looked", (None,), torch.int64, 0, MOST)
    n, m = len(value["indices"]), len(value["looked"])
    check_tensor(value["times"], f"{at}.times", (n, 2), torch.float64, -LATEST, LATEST)
    check_tensor(value["poses"], f"{at}.poses", (n, 3, 4), torch.float64, -FAR, FAR)
    check_tensor(value["marks"], f"{at}.marks", (n, 2), torch.int64, -1, MOST)
    if m == 0:
        check_tensor(value["looks"], f"{at}.looks", (0,))
    elif camera:
        check_tensor(value["looks"], f"{at}.looks", (m, None, None, 3), torch.uint8)
        demand(value["looks"].numel() > 0, f"{at}.looks", "pictures")
    else:
        check_tensor(value["looks"], f"{at}.looks", (m, MEANS), torch.float64, -FARTHEST, FARTHEST)
