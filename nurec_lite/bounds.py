# SPDX-License-Identifier: Apache-2.0
"""Ranges of each key of the configuration: one table for all commands and all parameters of options, and the checks against it.

Types stand in the dataclasses of `config.py`, ranges here. Limits are generous: they refuse values that have no meaning or cannot end well,
but not unwise ones.
"""

import difflib
import math
import types
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.options import known_options, parameters_of
from nurec_lite.base.texts import type_of

MOST_ENTRIES = 1000  # of a list
AUTO = "auto"  # of a number: the capture decides
LONGEST = 4096  # characters: no path of Linux is longer


class BoundError(ConfigError):
    """A key is unknown, or its value of a wrong type or out of range; the message names the key and its range."""


@dataclass(frozen=True)
class Between:
    """A finite number, or a list of such."""

    low: float
    high: float
    above: bool = False  # low itself is too little
    below: bool = False  # high itself is too much

    def holds(self, value: Any) -> bool:
        number = type(value) in (int, float) and self.low <= value <= self.high  # NaN fails as well
        return number and not (self.above and value == self.low) and not (self.below and value == self.high)

    def __str__(self) -> str:
        low, high = _shown(self.low), _shown(self.high)
        if self.above or self.below:
            return f"be {'above' if self.above else 'at least'} {low} and {'below' if self.below else 'at most'} {high}"
        return f"lie between {low} and {high}"


@dataclass(frozen=True)
class BetweenOrAuto(Between):
    """A finite number, or the word that leaves it to the program."""

    def holds(self, value: Any) -> bool:
        return value == AUTO or super().holds(value)

    def __str__(self) -> str:
        return f"be {AUTO} or {super().__str__()}".replace("or be ", "or ")


@dataclass(frozen=True)
class OneOf:
    choices: tuple[str | int, ...]

    def holds(self, value: Any) -> bool:
        return value in self.choices

    def __str__(self) -> str:
        return f"be one of {', '.join(map(str, self.choices))}"


@dataclass(frozen=True)
class Text:
    """Text that can name a file, except text that OmegaConf would resolve by an environment variable when it reads the value again."""

    def holds(self, value: Any) -> bool:
        plain = isinstance(value, str) and len(value) <= LONGEST and "\0" not in value and "${" not in value
        return plain and value == value.encode(errors="ignore").decode()

    def __str__(self) -> str:
        return f"be at most {LONGEST} characters of Unicode without ${{"


@dataclass(frozen=True)
class Flag:
    def holds(self, value: Any) -> bool:
        return type(value) is bool

    def __str__(self) -> str:
        return "be true or false"


Bound = Between | OneOf | Text | Flag

KINDS = (
    "bundled",
    "pack",
    "argoverse2",
    "colmap",
    "kitti360",
    "kitti_raw",
    "ncore",
    "nuscenes",
    "pandaset",
    "rosbag",
    "waymo",
)  # of captures, each with a reader
POSE_CONVENTIONS = tuple(f"{of}{way}" for of in ("lidar", "camera", "rig") for way in ("", "_inverse", "_relative"))
_COUNT, _AUTO_COUNT, _SHARE = Between(0, 10**8), BetweenOrAuto(0, 10**8), Between(0, 1)
_RATE = _WEIGHT = Between(0, 1e39)  # where too much begins, only training tells
_TIME, _TEXT, _FLAG, _PORT = Between(-1e10, 1e10), Text(), Flag(), Between(0, 65535)
BOUNDS: dict[str, Bound] = {
    "out": _TEXT, "seed": Between(0, 2**32 - 1), "device": _TEXT,
    "ops": OneOf(("native", "reference")), "render": OneOf(("own", "gsplat")),
    "data.name": _TEXT, "data.kind": OneOf(KINDS), "data.root": _TEXT,
    "data.downscale": Between(1, 1024), "data.split": OneOf(("interp", "side", "validation", "half")),
    "data.frames": Between(0, 10**9), "data.seconds": _TIME, "data.cameras": _TEXT, "data.lidars": _TEXT, "data.without": _TEXT,
    "data.rate": Between(1e-3, 1e4), "data.unit_metres": Between(0, 1e6, above=True),
    "data.mapping": _TEXT, "data.masks": _TEXT, "data.trust": _FLAG, "data.date": _TEXT,
    "data.drive": _TEXT, "data.image_delay": Between(-10, 10),
    "data.poses.file": _TEXT, "data.poses.source": OneOf(("auto", "capture", "lidar")),
    "data.poses.convention": OneOf(POSE_CONVENTIONS), "data.tracks.file": _TEXT,
    "data.tracks.source": OneOf(("auto", "capture", "lidar", "none")),
    "data.tracks.sizes": OneOf(("hwl", "hlw", "whl", "wlh", "lhw", "lwh")), "data.tracks.first_frame": Between(0, 10**9),
    "model.points": _AUTO_COUNT, "model.actor_points": _COUNT, "model.raised_points": _AUTO_COUNT, "model.far_points": _AUTO_COUNT,
    "model.far_metres": Between(0, 1e5, above=True), "model.sh_degree": Between(0, 3), "model.sky_height": Between(1, 8192),
    "model.lidar_opacity": _FLAG, "model.opacity": Between(0, 1, above=True), "model.guessed_opacity": Between(0, 1, above=True),
    "model.calibrate": _FLAG, "model.mirror_actors": _FLAG, "model.knot_seconds": Between(0.01, 1e4),
    "model.bilateral_grid": Between(1, 64), "model.thickness": Between(0, 100, above=True),
    "train.steps": Between(0, 10**9), "train.seconds": Between(0, 1e9), "train.lidar_rays": _COUNT,
    "train.lidar_every": Between(1, 10**6), "train.lidar_sector": Between(1, 10**6), "train.coarse": BetweenOrAuto(0, 1, below=True),
    "train.checkpoint_seconds": Between(0, 1e9), "train.overwrite": _FLAG, "train.resume": _TEXT, "train.evaluate": _FLAG,
    "train.tensorboard": _FLAG, "train.timing": _FLAG,
    "lr.means": _RATE, "lr.means_decay": Between(0, 1, above=True), "lr.quats": _RATE, "lr.log_scales": _RATE,
    "lr.opacity_logits": _RATE, "lr.sh0": _RATE, "lr.sh_rest": _RATE, "lr.lidar_logits": _RATE, "lr.sky": _RATE,
    "lr.track_translations": _RATE, "lr.track_quaternions": _RATE, "lr.exposure": _RATE,
    "lr.rig_rotations": _RATE, "lr.rig_translations": _RATE, "lr.camera_rotations": _RATE, "lr.camera_translations": _RATE,
    "lr.camera_offsets": _RATE, "lr.exposure_drift": _RATE, "lr.vignetting": _RATE, "lr.bilateral": _RATE,
    "lr.decay": Between(0, 1, above=True),
    "density.every": Between(1, 10**9), "density.start": _SHARE, "density.stop": _SHARE,
    "density.cap": BetweenOrAuto(1, 10**9), "density.growth": Between(1, 100), "density.footprint": _FLAG, "density.box": Between(1, 100),
    "density.jitter": Between(0, 100), "density.noise": _RATE,
    "loss.image": _WEIGHT, "loss.ssim": _SHARE, "loss.range": _WEIGHT, "loss.reach": _WEIGHT,
    "loss.intensity": _WEIGHT, "loss.drop": _WEIGHT, "loss.opacity": _WEIGHT,
    "loss.tie": _WEIGHT, "loss.scale": _WEIGHT, "loss.exposure": _WEIGHT,
    "loss.calibration": _WEIGHT, "loss.drift": _WEIGHT, "loss.bilateral": _WEIGHT,
    "measure.seconds": Between(0, 1e6),
    # of the other commands
    "checkpoint": _TEXT, "subset": OneOf(("test", "train", "all")),
    "sensors": _TEXT, "sensor": _TEXT, "times": _TIME, "fps": Between(0.01, 1000), "shift": Between(-1e6, 1e6), "remove": _TEXT,
    "move": _TEXT, "edits": _TEXT, "path": _TEXT, "compare": _FLAG, "formats": _TEXT,
    "outputs": OneOf(("colour", "depth", "normals", "opacity", "classes")), "node": _TEXT, "time": _TIME,
    "up": OneOf(("z", "y", "-y")), "normals": _FLAG, "rig": _FLAG, "cell": Between(0.01, 10),
    "format": OneOf(("pack", "ncore")), "image_format": OneOf(("jpeg", "png")), "quality": Between(1, 100), "show": _FLAG,
    "tool": OneOf(("nsys", "ncu", "torch")), "warmup": Between(0, 10**6), "steps": Between(1, 10**6), "launches": Between(1, 10**6),
    "kernels": _TEXT, "range": _TEXT, "csv": _TEXT, "runs": _TEXT,
    "host": _TEXT, "port": _PORT, "height": Between(16, 8192),
    "metrics_port": _PORT, "tls_certificate": _TEXT, "tls_key": _TEXT, "tls_clients": _TEXT,
    "loaded": Between(1, 1000), "unlisted": OneOf(("absent", "recorded")), "unknown": OneOf(("skipped", "refused")),
    "patterns": _TEXT, "ego_masks": _TEXT, "max_message_mb": Between(1, 1024), "max_pixels": Between(1, 1 << 26),
    "max_requests": Between(1, 1024), "max_waiting": Between(1, 100_000), "stop_seconds": Between(0, 3600),
    # of options: opt.NAME.PARAMETER
    "opt.workers.count": Between(0, 256), "opt.workers.ahead": Between(1, 1024),
    "opt.no_sync.slack": Between(1, 100), "opt.balanced_tiles.part": Between(1, 2**20),
    "opt.resident.share": Between(0, 1, above=True), "opt.resident.jpeg": OneOf(("host", "gpu")),
    "opt.short_keys.bits": OneOf((16, 24)), "opt.fused_adam.touched_only": _FLAG,
    "opt.batch.images": Between(1, 64), "opt.batch.sweeps": Between(1, 64), "opt.batch.scale_rates": _FLAG,
    "opt.batch.one_launch": _FLAG,
}  # fmt: skip


def check_values(
    values: Mapping[str, Any],  # nested, as `asdict` of a configuration gives it
    classes: Collection[type],  # dataclasses of known keys
) -> None:
    """Raises BoundError for the first key that is unknown, of a wrong type, or out of its range."""
    hints = refuse_unknown(values, classes)
    for key, value in _flat(values, "", hints):
        if not _fits(value, hints[key]):
            raise wrong_type(key, value, hints[key])
        _check_range(key, value)
    check_options(values.get("opt", {}))


def wrong_type(key: str, value: Any, hint: Any) -> BoundError:
    return BoundError(f"{key} is {in_words(value)}, but must be {_type_name(hint)}; correct this key")


def unknown_key(key: str, known: Collection[str]) -> BoundError:
    """Names the nearest known key."""
    last = {one.rpartition(".")[2]: one for one in known}  # a key without its group, as in steps=3
    near = difflib.get_close_matches(key, known, 1)
    near = near or [last[one] for one in difflib.get_close_matches(key.rpartition(".")[2], last, 1, cutoff=0.8)]
    return BoundError(f"key {in_words(key)} is unknown; {f'did you mean {near[0]}?' if near else 'leave it out'}")


def refuse_unknown(values: Mapping[str, Any], classes: Collection[type]) -> dict[str, Any]:
    """Returns the types of all keys; BoundError with the nearest known key for an unknown one."""
    hints = {key: hint for cls in classes for key, hint in leaves(cls)}
    for key, _ in _flat(values, "", hints):
        if key not in hints:
            raise unknown_key(key, hints)
    return hints


def check_options(options: Any) -> None:
    """Checks the parameters of options; backends.py knows which options exist."""
    if type(options) is not dict or len(options) > MOST_ENTRIES:
        raise BoundError(f"opt is {in_words(options)}, but must name options, as in +opt=[workers]; correct this key")
    for name, given in options.items():
        if type(name) is not str or type(given) not in (dict, type(None)):
            raise BoundError(f"opt.{repr(name)[1:-1][:40]} is {in_words(given)}, but must hold the option's parameters")
        for key, value in (given or {}).items() if name != "all" else ():
            _check_parameter(
                f"opt.{name}.{repr(key)[1:-1]}",
                value,
                parameters_of(name).get(key) if name in known_options() else None,
            )


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a dataclass of the configuration, but for options, with its type; nested ones with dots."""
    hints = get_type_hints(cls)
    for f in fields(cls):
        if is_dataclass(hints[f.name]):
            yield from leaves(hints[f.name], f"{prefix}{f.name}.")
        elif prefix + f.name != "opt":
            yield prefix + f.name, hints[f.name]


def _flat(values: Mapping[str, Any], prefix: str, hints: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        key = f"{prefix}{name}"
        if type(value) is dict and any(known.startswith(f"{key}.") for known in hints):
            yield from _flat(value, f"{key}.", hints)
        elif key != "opt":
            yield key, value


def _check_range(key: str, value: Any) -> None:
    assert key in BOUNDS, f"{key} has no range: add it to BOUNDS of nurec_lite/bounds.py"
    for one in value if type(value) is list else [value]:
        if one is not None and not BOUNDS[key].holds(one):
            verb = "holds" if type(value) is list else "is"
            raise BoundError(f"{key} {verb} {in_words(one)}, but must {BOUNDS[key]}; correct this key")


def _check_parameter(key: str, value: Any, default: Any) -> None:
    whole = type(value) is int or type(default) is not int
    if not whole or type(value) not in (int, float, str, bool):
        raise BoundError(
            f"{key} is {in_words(value)}, but must be {'a whole number' if not whole else 'a plain value'}"
        )
    if key in BOUNDS:
        _check_range(key, value)
    elif (isinstance(value, float) and not math.isfinite(value)) or (isinstance(value, str) and not _TEXT.holds(value)):
        raise BoundError(f"{key} is {in_words(value)}, but must be finite, or a text without ${{; correct this key")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is list:
        return type(value) is list and len(value) <= MOST_ENTRIES and all(_fits(v, get_args(hint)[0]) for v in value)
    return type(value) in ((int, float) if hint is float else (hint,))


def _type_name(hint: Any) -> str:
    plain = {int: "a whole number", float: "a number", str: "a text", bool: "true or false", type(None): "null"}
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(map(_type_name, get_args(hint)))
    return plain.get(hint) or f"a list of at most {MOST_ENTRIES} entries, each {_type_name(get_args(hint)[0])}"


def _shown(number: float) -> str:
    return str(number) if isinstance(number, int) else f"{number:g}"


def in_words(value: Any) -> str:
    """One short printable line; texts in quotes, because they may hold any character."""
    if isinstance(value, (list, dict)):
        return f"a {'list' if isinstance(value, list) else 'record'} of {len(value)}"
    if type(value) is int and abs(value) > 10**18:
        return f"{'-' if value < 0 else ''}a number of {value.bit_length()} bits"
    if type(value) in (int, float, bool, type(None)):
        return str(value)
    return repr(value)[:80] if isinstance(value, str) else type_of(value)
