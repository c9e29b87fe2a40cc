# SPDX-License-Identifier: Apache-2.0
"""A small sequence in PandaSet's layout: a street between walls, one car that drives and one that is parked, and tables as pandas 1.0 or
1.3 pickles them, made without pandas."""

import gzip
import json
import math
import pickle
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from nurec_lite.capture.pandaset.sequence import T_PANDAR_RIG
from nurec_lite.geometry.lidar import unit_directions
from nurec_lite.geometry.se3 import invert, matrix_to_quat

SIZE = (48, 32)  # pixels of an image here; PandaSet's are 1920x1080
FRAMES, STEPS = 3, 90
START = 1.5e9  # Unix seconds
SPEED = 8.0  # metres a second, along the world's y
ELEVATIONS = torch.deg2rad(
    torch.cat([torch.linspace(-24, -7, 14), -6 + 0.17 * torch.arange(46), torch.tensor([3.0, 5, 11, 15])])
).double()
CAMERAS = {
    "front_camera": 0.0,
    "back_camera": math.pi,
    "left_camera": 0.5 * math.pi,
}  # where they look, about the rig's z
CAR, PARKED = "9f1c-car", "77aa-parked"
T_RIG_GT = torch.tensor([[0, 1, 0, 0.6], [-1, 0, 0, 0.02], [0, 0, 1, 0.3], [0, 0, 0, 1]], dtype=torch.float64)


# ---- tables


def _reduced(self: Any) -> tuple[Any, ...]:
    return type(self), self.given


@contextmanager
def _pandas() -> Iterator[dict[str, Any]]:
    """Classes with the names of pandas' own, so that a pickle names them."""
    places = {
        "DataFrame": "pandas.core.frame", "BlockManager": "pandas.core.internals.managers", "Index": "pandas.core.indexes.base",
        "_new_Index": "pandas.core.indexes.base", "_unpickle_block": "pandas._libs.internals",
    }  # fmt: skip
    names = {".".join(place.split(".")[: k + 1]) for place in places.values() for k in range(place.count(".") + 1)}
    modules = {name: ModuleType(name) for name in names}
    made: dict[str, Any] = {}
    for name, place in places.items():
        made[name] = type(name, (), {}) if name[0] != "_" else lambda *given: given
        made[name].__module__, made[name].__qualname__, made[name].__name__ = place, name, name
        setattr(modules[place], name, made[name])
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield made
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


class _Call:
    """Pickled as a call of a function with arguments."""

    def __init__(self, function: Any, *given: Any) -> None:
        self.function, self.given = function, given

    def __reduce__(self) -> tuple[Any, ...]:
        return self.function, self.given


def table(columns: dict[str, Any], late: bool = False) -> bytes:
    """A pickled DataFrame with a block of all numbers and one of all else, as pandas 1.0 writes it, or 1.3 and later (`late`)."""
    names = np.array(list(columns), dtype=object)
    arrays = [np.asarray(values) for values in columns.values()]
    blocks = []
    for number in (True, False):
        where = np.array([k for k, a in enumerate(arrays) if (a.dtype.kind in "fiub") == number])
        if len(where):
            values = np.stack([arrays[k].astype(np.float64 if number else object) for k in where])
            blocks.append({"values": values, "mgr_locs": where})
    with _pandas() as pandas:
        rows = _Call(pandas["_new_Index"], pandas["Index"], {"data": np.arange(len(arrays[0])), "name": "index"})
        axes = [_Call(pandas["_new_Index"], pandas["Index"], {"data": names, "name": None}), rows]
        frame, manager = pandas["DataFrame"](), pandas["BlockManager"]()
        if late:
            parts = tuple(_Call(pandas["_unpickle_block"], b["values"], b["mgr_locs"], 2) for b in blocks)
            frame.__dict__ = {"_mgr": _Call(pandas["BlockManager"], parts, axes), "_typ": "dataframe", "attrs": {}}
        else:
            pandas["BlockManager"].__getstate__ = lambda self: (
                axes,
                [],
                [],
                {"0.14.1": {"axes": axes, "blocks": blocks}},
            )
            frame.__dict__ = {"_data": manager, "_typ": "dataframe"}
        return pickle.dumps(frame, protocol=4)


# ---- the street


def rig_at(seconds: Tensor) -> Tensor:  # [n] since START -> [n, 4, 4] T_world_rig; x of the rig is the world's y
    T = torch.eye(4, dtype=torch.float64).repeat(len(seconds), 1, 1)
    T[:, :3, :3] = torch.tensor([[0.0, -1, 0], [1, 0, 0], [0, 0, 1]])
    T[:, :3, 3] = torch.stack([0 * seconds + 500, SPEED * seconds - 20, 0 * seconds + 12], dim=1)
    return T


def car_at(seconds: Tensor) -> Tensor:  # [n] -> [n, 3] world, metres: ahead of the rig, and faster
    return torch.stack([0 * seconds + 499, 10 * seconds - 8, 0 * seconds + 10.95], dim=1)


def points(end: float) -> tuple[Tensor, Tensor]:  # [n, 3] world, [n] seconds
    """Ground 1.8 m below the lidar, walls 12 m to its sides. A revolution begins behind and runs over the left."""
    azimuth = math.pi - (torch.arange(STEPS, dtype=torch.float64) + 0.5) * 2 * math.pi / STEPS
    angles = torch.stack(torch.meshgrid(azimuth, ELEVATIONS, indexing="ij"), dim=-1).reshape(-1, 2)
    times = end - 0.1 + 0.1 * (math.pi - angles[:, 0]) / (2 * math.pi)
    ways = unit_directions(angles)
    far = torch.minimum(torch.where(ways[:, 2] < 0, -1.8 / ways[:, 2], torch.inf), 12 / ways[:, 1].abs())
    T, near = rig_at(times), far < 90
    world = (T[:, :3, :3] @ (far[:, None] * ways)[..., None])[..., 0] + T[:, :3, 3]
    return world[near], times[near]


def write_sequence(root: Path, name: str = "007", late: bool = False, packed: bool = True) -> Path:
    folder, ends = root / name, [0.1 * (k + 1) for k in range(FRAMES)]
    _write_calibration(root / "static_extrinsic_calibration.yaml")
    _json(folder / "lidar/timestamps.json", [START + end for end in ends])
    for k, end in enumerate(ends):
        write_table(folder / f"lidar/{k:02d}.pkl", _sweep(end), late, packed)
        write_table(folder / f"annotations/cuboids/{k:02d}.pkl", boxes_at(end - 0.05), late, packed)
    for camera in CAMERAS:
        _write_camera(folder / "camera" / camera, camera, torch.tensor(ends, dtype=torch.float64) - 0.05)
    return folder


def write_table(path: Path, columns: dict[str, Any], late: bool = False, packed: bool = True) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = table(columns, late)
    if packed:
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(data, 1, mtime=0))
    else:
        path.write_bytes(data)


def _sweep(end: float) -> dict[str, Any]:
    """The last third is of the PandarGT, which sees some of the same places."""
    world, times = points(end)
    seen = slice(0, None, 2)
    x, y, z = torch.cat([world, world[seen]]).T.numpy()
    n, other = len(x), np.arange(len(x)) >= len(world)
    return {
        "x": x,
        "y": y,
        "z": z,
        "i": np.full(n, 51.0),
        "t": torch.cat([times, times[seen]]).numpy() + START,
        "d": other.astype(float),
    }


def boxes_at(time: float) -> dict[str, Any]:
    """The moving car by both lidars, and a parked one. yaw is of the y axis: 0 along the world's y."""
    car = car_at(torch.tensor([time]).double())[0].tolist()
    rows = [
        (CAR, "Car", False, car, -1),
        ("twin", "Car", False, car, 1),
        (PARKED, "Car", True, [503.0, 5.0, 10.95], -1),
    ]
    return {
        "uuid": [r[0] for r in rows], "label": [r[1] for r in rows], "yaw": [0.0] * 3, "stationary": [r[2] for r in rows],
        **{f"position.{k}": [r[3][i] for r in rows] for i, k in enumerate("xyz")},
        "dimensions.x": [1.9] * 3, "dimensions.y": [4.4] * 3, "dimensions.z": [1.5] * 3, "cuboids.sensor_id": [r[4] for r in rows],
    }  # fmt: skip


# ---- cameras


def mounting(camera: str) -> Tensor:  # [4, 4] T_rig_cam
    c, s = math.cos(CAMERAS[camera]), math.sin(CAMERAS[camera])
    T = torch.eye(4, dtype=torch.float64)
    T[:3, :3] = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]) @ torch.tensor([[0, 0, 1.0], [-1, 0, 0], [0, -1, 0]])
    T[:3, 3] = torch.tensor([0.3, 0.1, -0.2])
    return T


def _write_calibration(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = []
    for camera in (*CAMERAS, "front_gt"):
        T_rig_sensor = T_RIG_GT if camera == "front_gt" else mounting(camera)
        turn, place = _quat_place(invert(T_rig_sensor) @ invert(T_PANDAR_RIG))
        rows = "\n".join(f"        {k}: {v!r}" for k, v in zip("wxyz", turn, strict=True))
        more = "\n".join(f"        {k}: {v!r}" for k, v in zip("xyz", place, strict=True))
        entries.append(
            f"{camera}:\n  extrinsic:\n    transform:\n      rotation:\n{rows}\n      translation:\n{more}\n"
        )
    path.write_text("".join(entries))


def _quat_place(T: Tensor) -> tuple[list[float], list[float]]:
    return matrix_to_quat(T[:3, :3]).tolist(), T[:3, 3].tolist()


def _write_camera(folder: Path, camera: str, stamps: Tensor) -> None:
    _json(folder / "intrinsics.json", {"fx": 40.0, "fy": 40.0, "cx": 24.0, "cy": 16.0})
    _json(folder / "timestamps.json", (stamps + START).tolist())
    poses = [_quat_place(T) for T in rig_at(stamps) @ mounting(camera)]
    _json(
        folder / "poses.json",
        [
            {"position": dict(zip("xyz", p, strict=True)), "heading": dict(zip("wxyz", q, strict=True))}
            for q, p in poses
        ],
    )
    rng = np.random.default_rng(len(camera))
    for k in range(len(stamps)):
        Image.fromarray(rng.integers(0, 256, (SIZE[1], SIZE[0], 3), dtype=np.uint8)).save(folder / f"{k:02d}.jpg")


def _json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
