# SPDX-License-Identifier: Apache-2.0
"""The schema of a checkpoint: keys, shapes, types and ranges, all checked before any of it is used.

A check takes a value and the place where it stands, and raises SchemaError. A scene that training could not have left (a Gaussian of no
node, moments of another shape than their parameter) would otherwise end in a crash of the compiled kernels, far from its cause.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.names import LONGEST_NAME, NODES, clashes, folded, label_flaw
from nurec_lite.bounds import BoundError, check_values
from nurec_lite.config import Config
from nurec_lite.scene.bilateral import NUMBERS
from nurec_lite.scene.calibration import OFFSETS, TRAINED
from nurec_lite.scene.gaussians import LIDAR_VALUES, Gaussians
from nurec_lite.training.capture_record import check_record
from nurec_lite.training.schema_values import (
    LARGEST,
    SchemaError,
    check_keys,
    check_names,
    check_number,
    check_tensor,
    demand,
)

FARTHEST = 1e8  # metres from the origin, as of captures
LATEST = 1e10  # seconds, as of captures
BANDS = (0, 3, 8, 15)  # higher coefficients of harmonics of degree 0 to 3
LIDAR = (LIDAR_VALUES, LIDAR_VALUES + 1)  # values of a Gaussian: without an opacity of its own, and with it
MOST = 1 << 53  # steps, rows
SHORTEST = 1e-3  # of a quaternion, which a pose is divided by
FINITE = torch.finfo(torch.float32).max
_LARGEST = {
    "means": FARTHEST,
    "track_translations": FARTHEST,
    "log_scales": 40.0,
}  # so that the square of the exponential is a float32


def largest_value(
    parameter: str,  # its name
) -> float:
    """Largest magnitude that a checkpoint may hold."""
    return _LARGEST.get(parameter, LARGEST)


def check_content(content: Mapping[str, Any]) -> None:
    """Checks a checkpoint that has all its parts, on the host; SchemaError with the first flaw."""
    check_scene(content["scene"])
    _check_optimizer(content["optimizer"], content["scene"]["parameters"])
    check_tensor(content["generator"], "generator", (None,), torch.uint8)
    _check_counters(content["counters"])
    _check_history(content["history"])
    if "capture" in content:  # older files have none
        check_record(content["capture"])
    demand(type(content["config"]) is dict, "config", "a record")
    try:
        check_values(content["config"], [Config])
    except BoundError as error:
        raise SchemaError(f"config: {error}") from error


# ---- the parts of a scene


def _columns(value: Any) -> int:
    """Returns -1 if there is none."""
    return value.shape[1] if type(value) is Tensor and value.dim() > 1 else -1


def check_scene(scene: Any) -> None:
    check_keys(
        scene,
        "scene",
        ("parameters", "node", "tracks", *(k for k in ("origin", "calibration") if type(scene) is dict and k in scene)),
    )
    _check_origin(scene.get("origin", [0.0, 0.0, 0.0]))
    tracks, keyframes = _check_tracks(scene["tracks"])
    values, own = scene["parameters"], ("sky", "track_translations", "track_quaternions", "exposure")
    grids, clocks = (type(values) is dict and name in values for name in ("bilateral", OFFSETS))
    learned = _check_calibration(scene["calibration"], grids, clocks) if "calibration" in scene else {}
    check_keys(values, "scene.parameters", (*Gaussians.trained(), *own, *learned))
    n = len(values["means"]) if type(values["means"]) is Tensor and values["means"].dim() else 0
    demand(n > 0, "scene.parameters.means", "a tensor of at least one Gaussian")
    bands = _columns(values["sh_rest"])
    demand(bands in BANDS, "scene.parameters.sh_rest", "harmonics of degree 0 to 3")
    lidar = _columns(values["lidar_logits"])
    demand(lidar in LIDAR, "scene.parameters.lidar_logits", "intensity and ray drop, without or with an opacity")
    shapes: dict[str, tuple[int | None, ...]] = {
        "means": (n, 3), "quats": (n, 4), "log_scales": (n, 3), "opacity_logits": (n,), "sh0": (n, 1, 3),
        "sh_rest": (n, bands, 3), "lidar_logits": (n, lidar), "sky": (3, None, None), "track_translations": (keyframes, 3),
        "track_quaternions": (keyframes, 4), "exposure": (None, 2, 3), **learned,
    }  # fmt: skip
    for name, shape in shapes.items():
        largest = largest_value(name)
        check_tensor(values[name], f"scene.parameters.{name}", shape, low=-largest, high=largest)
    _turned(values["track_quaternions"], "scene.parameters.track_quaternions")
    if grids:
        demand(values["bilateral"].numel() > 0, "scene.parameters.bilateral", "grids of one cell at least")
    demand(values["sky"].numel() > 0 and len(values["exposure"]) > 0, "scene.parameters", "of at least one camera")
    check_tensor(scene["node"], "scene.node", (n,), torch.int64, 0, tracks)
    demand(bool((scene["node"].diff() >= 0).all()), "scene.node", "in the order of the nodes")


def _check_calibration(
    value: Any,
    grids: bool,  # bilateral ones are learned
    clocks: bool,  # offsets are, too
) -> dict[str, tuple[int | None, ...]]:  # shapes of learned tensors
    check_keys(value, "scene.calibration", ("knots", "cameras"))
    check_names(value["cameras"], "scene.calibration.cameras")
    demand(not any(clashes(value["cameras"])), "scene.calibration.cameras", "different from one another")
    check_tensor(value["knots"], "scene.calibration.knots", (None,), torch.float64, -LATEST, LATEST)
    rising = len(value["knots"]) > 1 and bool((value["knots"].diff() > 0).all())
    demand(rising, "scene.calibration.knots", "two rising times or more")
    k, c = len(value["knots"]), len(value["cameras"])
    own = dict(zip(TRAINED, ((k, 3), (k, 3), (c, 3), (c, 3), (c, k, 2, 3), (c, 3)), strict=True))
    late: dict[str, tuple[int | None, ...]] = {OFFSETS: (c,)} if clocks else {}
    return own | ({"bilateral": (c, k, NUMBERS, None, None, None)} if grids else {}) | late


def _check_origin(value: Any) -> None:
    demand(type(value) is list and len(value) == 3, "scene.origin", "three numbers")
    for number in value:
        check_number(number, "scene.origin", -FARTHEST, FARTHEST)


def _turned(quaternions: Tensor, at: str) -> None:
    demand(bool((quaternions.norm(dim=-1) >= SHORTEST).all()), at, f"quaternions of a length of at least {SHORTEST:g}")


def _check_tracks(value: Any) -> tuple[int, int]:  # how many tracks, and keyframes of all of them
    names = ("ids", "classes", "sizes", "offsets", "times", "translations", "quaternions", "margin")
    check_keys(value, "scene.tracks", names)
    check_names(value["ids"], "scene.tracks.ids")
    k, offsets = len(value["ids"]), value["offsets"]
    check_names(value["classes"], "scene.tracks.classes", k, label_flaw)
    apart = not any(clashes(value["ids"])) and not {folded(name) for name in value["ids"]} & set(NODES)
    demand(apart, "scene.tracks.ids", "different from one another and from the words that export takes for a node")
    whole = type(offsets) is tuple and len(offsets) == k + 1 and all(type(o) is int for o in offsets)
    rising = whole and offsets[0] == 0 and all(a < b for a, b in pairwise(offsets)) and offsets[-1] <= MOST
    demand(rising, "scene.tracks.offsets", f"{k + 1} numbers that rise from 0")
    m = offsets[-1]
    check_tensor(value["sizes"], "scene.tracks.sizes", (k, 3), high=LARGEST, low=0)
    check_tensor(value["times"], "scene.tracks.times", (m,), torch.float64, -LATEST, LATEST)
    check_tensor(value["translations"], "scene.tracks.translations", (m, 3), low=-FARTHEST, high=FARTHEST)
    check_tensor(value["quaternions"], "scene.tracks.quaternions", (m, 4))
    _turned(value["quaternions"], "scene.tracks.quaternions")
    check_number(value["margin"], "scene.tracks.margin", 0, LATEST)
    later = value["times"].diff() > 0
    later[[o - 1 for o in offsets[1:-1]]] = True  # from one track to the next it may fall
    demand(bool(later.all()), "scene.tracks.times", "rising within each track")
    return k, m


def _check_optimizer(value: Any, parameters: dict[str, Tensor]) -> None:
    """Checks the optimizer's state. Only moments are taken from it; the program has Adam's other settings."""
    check_keys(value, "optimizer", ("state", "param_groups"))
    groups, state = value["param_groups"], value["state"]
    named = type(groups) is list and all(type(group) is dict for group in groups)
    found = [(group.get("name"), group.get("params")) for group in groups] if named else []
    plain = all(type(name) is str and type(p) is list and all(type(i) is int for i in p) for name, p in found)
    wanted = [(name, [i]) for i, name in enumerate(parameters)]
    demand(plain and found == wanted, "optimizer.param_groups", "one a parameter")
    demand(type(state) is dict, "optimizer.state", "a record of moments")
    for i, moments in state.items():
        at = f"optimizer.state[{str(i)[:20]}]"
        demand(type(i) is int and 0 <= i < len(parameters), at, "of a parameter")
        check_keys(moments, at, ("step", "exp_avg", "exp_avg_sq"))
        shape = tuple(list(parameters.values())[i].shape)
        check_tensor(moments["step"], f"{at}.step", (), low=0, high=MOST)
        for name, low in (("exp_avg", -FINITE), ("exp_avg_sq", 0)):
            check_tensor(moments[name], f"{at}.{name}", shape, _moment_type(moments[name]), low, FINITE)


def _moment_type(value: Any) -> torch.dtype:
    """Runs with `amp` keep some as bfloat16."""
    return torch.bfloat16 if type(value) is Tensor and value.dtype == torch.bfloat16 else torch.float32


def _check_counters(value: Any) -> None:
    demand(type(value) is dict and {"step", "seconds"} <= value.keys(), "counters", "a record of step and seconds")
    for name, number in value.items():
        check_number(number, f"counters.{str(name)[:20]}", 0, MOST)
    demand(type(value["step"]) is int, "counters.step", "a whole number")


def _check_history(value: Any) -> None:
    demand(type(value) is list, "history", "a list")
    for i, row in enumerate(value):
        at = f"history[{i}]"
        demand(
            type(row) is dict and {"step", "seconds", "gaussians"} <= row.keys(), at, "a record with step and seconds"
        )
        for name in ("step", "seconds", "gaussians"):
            check_number(row[name], f"{at}.{name}", 0, MOST)
        good = all(type(k) is str and k.isidentifier() and len(k) <= LONGEST_NAME for k in row)
        demand(good and all(type(v) in (int, float) for v in row.values()), at, "numbers by the names of terms")
