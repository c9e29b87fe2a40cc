# SPDX-License-Identifier: Apache-2.0
"""The schema of `capture.json` in a pack: a table of its keys, each with the check of its value.

A check takes a value and the place where it stands, and raises FormatError. It knows one value at a time. Agreement of several values
(poses, times, tracks) is the matter of check.py, for captures of every source.
"""

import json
from collections.abc import Callable
from itertools import chain
from typing import Any

from nurec_lite.base.names import LONGEST_NAME, label_flaw, name_flaw
from nurec_lite.base.texts import excerpt
from nurec_lite.capture.check import MAX_AZIMUTH_STEPS, MAX_PIXELS
from nurec_lite.capture.types import CHOSEN, SPLITS
from nurec_lite.geometry.camera import SHUTTERS
from nurec_lite.geometry.lens import COEFFICIENTS, LENSES

FORMAT = "nurec_lite capture"
VERSION = 1
INDEX = "capture.json"
IMAGE_FORMATS = {"png": "png", "jpeg": "jpg"}  # and the ending of their members
REMEDY = "copy it again, or write it again with python -m nurec_lite.pack"

LIMIT = 1e12  # of any number
MOST_FRAMES = 10**9
LONGEST_SENTENCE = 1000  # characters

Check = Callable[[Any, str], None]  # value, place as in images[3].sensor


class FormatError(ValueError):
    """A flaw of a pack, and its place."""


def image_member(sensor: str, index: int, image_format: str) -> str:
    return f"images/{sensor}/{index:06d}.{IMAGE_FORMATS[image_format]}"


def mask_member(camera: str) -> str:
    return f"masks/{camera}.png"


def sweep_member(sensor: str, index: int) -> str:
    return f"sweeps/{sensor}/{index:06d}.sweep"


def table_member(sensor: str) -> str:
    return f"tables/{sensor}.sweep"


# ---- single values


def shown(value: Any) -> str:
    """Text for messages: short, and in JSON."""
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    return json.dumps(value)[:40]


def _demand(holds: bool, value: Any, at: str, wanted: str) -> None:
    if not holds:
        raise FormatError(f"{at} is {shown(value)}, but must be {wanted}")


def text(value: Any, at: str) -> None:
    holds = isinstance(value, str) and 0 < len(value) <= 2 * LONGEST_NAME and value.isprintable()
    _demand(holds, value, at, f"1 to {2 * LONGEST_NAME} printable characters")


def checked(flaw: Callable[[Any], str | None]) -> Check:
    def check(value: Any, at: str) -> None:
        wrong = flaw(value)
        if wrong is not None:
            must = wrong.removeprefix("is not ")
            raise FormatError(f"{at} is {shown(value)}, {f'which {wrong}' if must == wrong else f'but must be {must}'}")

    return check


def sentence(value: Any, at: str) -> None:
    holds = isinstance(value, str) and 0 < len(value) <= LONGEST_SENTENCE and value.isprintable()
    _demand(holds, value, at, f"1 to {LONGEST_SENTENCE} printable characters")


def remedy(value: Any, at: str) -> None:
    if value is not None:
        sentence(value, at)


name, label = checked(name_flaw), checked(label_flaw)


def flag(value: Any, at: str) -> None:
    _demand(type(value) is bool, value, at, "true or false")


def number(value: Any, at: str) -> None:
    holds = type(value) in (int, float) and -LIMIT <= value <= LIMIT  # NaN fails as well
    _demand(holds, value, at, f"a number within +-{LIMIT:.0e}")


def whole(low: int, high: int) -> Check:
    def check(value: Any, at: str) -> None:
        _demand(type(value) is int and low <= value <= high, value, at, f"a whole number from {low} to {high}")

    return check


def one_of(*choices: str | None) -> Check:
    def check(value: Any, at: str) -> None:
        # `in` would compare values of other types, too
        holds = (value is None or isinstance(value, str)) and value in choices
        _demand(holds, value, at, "one of " + ", ".join("null" if choice is None else choice for choice in choices))

    return check


def array(*shape: int | None) -> Check:  # None: any length
    """Checks nested lists of numbers level by level: an element at a time would take longer than everything else."""
    wanted = "numbers [" + ", ".join("any" if n is None else str(n) for n in shape) + f"] within +-{LIMIT:.0e}"

    def check(value: Any, at: str) -> None:
        level = [value]
        for n in shape:
            lists = set(map(type, level)) <= {list}
            _demand(lists and (n is None or set(map(len, level)) <= {n}), value, at, wanted)
            level = list(chain.from_iterable(level))
        _demand(set(map(type, level)) <= {int, float}, value, at, wanted)
        _demand(all(map(LIMIT.__ge__, map(abs, level))), value, at, wanted)

    return check


def distortion(value: Any, at: str) -> None:
    known = {count for _, counts in COEFFICIENTS.values() for count in counts}
    _demand(type(value) is list and len(value) in known, value, at, "the coefficients of a lens")
    array(None)(value, at)


def quality(value: Any, at: str) -> None:
    if value is not None:  # as PNG has none
        whole(1, 100)(value, at)


# ---- containers


def many(check: Check) -> Check:
    def check_all(value: Any, at: str) -> None:
        _demand(type(value) is list, value, at, "a list")
        for i, one in enumerate(value):
            check(one, f"{at}[{i}]")

    return check_all


def record(optional: dict[str, Check] | None = None, /, **required: Check) -> Check:
    known = required | (optional or {})

    def check(value: Any, at: str) -> None:
        _demand(type(value) is dict, value, at or INDEX, "an object")
        dot = f"{at}." if at else ""
        unknown, missing = value.keys() - known.keys(), required.keys() - value.keys()
        if unknown:
            raise FormatError(f"{dot}{excerpt(min(unknown))} is unknown")
        if missing:
            raise FormatError(f"{dot}{min(missing)} is missing")
        for key in value:
            known[key](value[key], dot + key)

    return check


# ---- the table

_CAMERA = record(
    {"lens": one_of(*LENSES), "mask": text},  # a pinhole without a mask states neither: older programs read it
    name=name, width=whole(1, MAX_PIXELS), height=whole(1, MAX_PIXELS), fx=number, fy=number, cx=number, cy=number,
    T_rig_cam=array(4, 4), distortion=distortion, shutter=one_of(*SHUTTERS),
)  # fmt: skip


def camera(value: Any, at: str) -> None:
    _CAMERA(value, at)
    model = value.get("lens", "pinhole")
    counts = COEFFICIENTS[model][1]
    wanted = f"{' or '.join(map(str, counts))} coefficients of a {model} lens"
    _demand(len(value["distortion"]) in counts, value["distortion"], f"{at}.distortion", wanted)
    if "mask" in value:
        _demand(value["mask"] == mask_member(value["name"]), value["mask"], f"{at}.mask", mask_member(value["name"]))


LIDAR = record(
    {"spins": flag, "table": text},  # a lidar of rows states none, so that older programs read it
    name=name, T_rig_lidar=array(4, 4), elevations=array(None), max_range=number,
    azimuth_steps=whole(1, MAX_AZIMUTH_STEPS), azimuth_start=number, clockwise=flag,
)  # fmt: skip
FRAME = record(
    sensor=name, index=whole(0, MOST_FRAMES), time_start=number, time_end=number,
    T_world_rig_start=array(4, 4), T_world_rig_end=array(4, 4), member=text,
)  # fmt: skip
UNUSED = record(sensor=name, index=whole(0, MOST_FRAMES), time_mid=number)
TRACKS = record(
    ids=many(name), classes=many(label), sizes=array(None, 3), offsets=many(whole(0, MOST_FRAMES)),
    times=array(None), translations=array(None, 3), quaternions=array(None, 4), margin=number,
)  # fmt: skip
DOUBT = record(subject=sentence, certain=flag, sentence=sentence, remedy=remedy)
ENCODING = record(format=one_of(*IMAGE_FORMATS), quality=quality)
CAPTURE = record(
    # older packs do not state their encoding, how their poses are known and whether tracks were searched; right drives have no doubts
    # and leave no frame out
    {
        "image_encoding": ENCODING, "doubts": many(DOUBT), "poses": one_of(CHOSEN), "searched": flag,
        "left_out": many(UNUSED),
    },
    format=one_of(FORMAT), version=whole(VERSION, VERSION), name=name, split=one_of(None, *SPLITS),
    cameras=many(camera), lidars=many(LIDAR), images=many(FRAME), sweeps=many(FRAME), tracks=TRACKS,
)  # fmt: skip


def check_index(index: Any) -> None:
    """Raises FormatError."""
    CAPTURE(index, "")
    formats = [index["image_encoding"]["format"]] if "image_encoding" in index else list(IMAGE_FORMATS)
    for i, row in enumerate(index["lidars"]):
        named = table_member(row["name"])
        _demand(row.get("table", named) == named, row.get("table"), f"lidars[{i}].table", named)
    for kind, sensors in (("images", "cameras"), ("sweeps", "lidars")):
        names = {sensor["name"] for sensor in index[sensors]}
        for i, row in enumerate(index[kind]):
            at, place = f"{kind}[{i}]", (row["sensor"], row["index"])
            _demand(row["sensor"] in names, row["sensor"], f"{at}.sensor", f"the name of one of the {sensors}")
            wanted = [sweep_member(*place)] if kind == "sweeps" else [image_member(*place, f) for f in formats]
            _demand(row["member"] in wanted, row["member"], f"{at}.member", " or ".join(wanted))
    names = {sensor["name"] for sensor in (*index["cameras"], *index["lidars"])}
    for i, row in enumerate(index.get("left_out", ())):
        _demand(row["sensor"] in names, row["sensor"], f"left_out[{i}].sensor", "the name of one of the sensors")
