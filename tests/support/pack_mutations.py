# SPDX-License-Identifier: Apache-2.0
"""A small pack, and ways to alter its capture.json; its CRC stays right."""

import copy
import io
import json
import random
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pack_parts import Held, make_capture, make_sweep

from nurec_lite.capture.pack import write_pack
from nurec_lite.capture.types import Capture

BEAMS = 16


def tiny() -> Capture:
    """Three images of each camera, three sweeps, two tracks."""
    capture = make_capture()
    return replace(
        capture,
        images=tuple(frame for frame in capture.images if frame.index < 3),
        sweeps=tuple(replace(f, load=Held(make_sweep(50, BEAMS, f.index))) for f in capture.sweeps[:3]),
    )


def packed() -> bytes:
    with TemporaryDirectory() as folder:
        write_pack(tiny(), Path(folder) / "drive.pack", image_format="png")
        return (Path(folder) / "drive.pack").read_bytes()


DEEP = "(deep)"  # json.loads must not crash on texts that json.dumps cannot write
VALUES = [
    *(None, True, False, 0, 1, -1, 2, 0.5, -0.0, 1e-320, 1e30, 1e308, 10**9, 10**30, 10**400, -(2**63)),
    *(float("nan"), float("inf"), -float("inf"), "", "x", "front", "top", "a\nb", "\ud800", "é" * 3, "x" * 10**5, "../x"),
    *([], {}, [[]], [0], [[0.0] * 4] * 4, [None], {"name": "front"}, DEEP, "png", "side", "images/front/000001.png"),
]  # fmt: skip


def mutate_index(index: Any, rng: random.Random) -> Any:
    """A value somewhere in the tree is replaced, removed, doubled, added, exchanged, nested, or a little different."""
    holder, key = rng.choice(list(places(index)))
    kind = rng.choice(("replace", "replace", "replace", "remove", "double", "add", "exchange", "nest", "scale", "copy"))
    if kind == "replace":
        holder[key] = copy.deepcopy(rng.choice(VALUES))  # a later change must not reach the table
    elif kind == "remove":
        del holder[key]
    elif kind == "double" and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif kind == "add":
        holder[key] = {**holder[key], "more": 1} if isinstance(holder[key], dict) else [holder[key], 1]
    elif kind == "exchange" and isinstance(holder, list):
        other = rng.randrange(len(holder))
        holder[key], holder[other] = holder[other], holder[key]
    elif kind == "nest":
        holder[key] = [holder[key]]
    elif kind == "scale" and isinstance(holder[key], (int, float)):
        factor = rng.choice((-1, 0.999, 1.5, 1000, 1e18))
        holder[key] *= factor if abs(holder[key]) < 1e300 else -1  # a product of a larger integer has no float
    elif kind == "copy":
        source, name = rng.choice(list(places(index)))
        holder[key] = copy.deepcopy(source[name])
    return index


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container and key; those of long lists of numbers count for a few."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from islice(places(value[key]), None if isinstance(value[key], dict) or len(value[key]) > 4 else 6)


def index_of(pack: bytes) -> Any:
    with zipfile.ZipFile(io.BytesIO(pack)) as archive:
        return json.loads(archive.read("capture.json"))


def with_index(pack: bytes, index: Any) -> bytes:
    text = json.dumps(index).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000)
    return with_member(pack, "capture.json", text.encode())


def with_member(archived: bytes, name: str, new: bytes) -> bytes:
    """A zip with one member replaced."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archived)) as old, zipfile.ZipFile(buffer, "w") as archive:
        for member in old.namelist():
            archive.writestr(member, new if member == name else old.read(member))
    return buffer.getvalue()
