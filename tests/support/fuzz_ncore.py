# SPDX-License-Identifier: Apache-2.0
"""Stores of NCore for scripts/fuzz.py whose metadata are whole, and hold other values."""

import random
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from mutations import overwrite
from ncore_damage import changed_metadata
from pack_mutations import mutate_index
from tiny_ncore import write_sequence

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.origin import recentred
from nurec_lite.capture.plausible import in_time, plausible

Steps = list[Any]


def draw(rng: random.Random) -> Steps:
    number = rng.getrandbits(24)
    return [(number, rng.getrandbits(62)) for _ in range(rng.randint(1, 3))]


@lru_cache(maxsize=1)
def files_of(root: Path) -> dict[Path, bytes]:
    write_sequence(root)
    return {path: path.read_bytes() for path in sorted(root.iterdir())}


def run(folder: Path, steps: Steps) -> None:
    root = folder / "ncore metadata"
    files = files_of(root)
    path = list(files)[(steps[0][0] if steps else 0) % len(files)]
    try:
        with suppress(UnicodeEncodeError):  # CBOR has no surrogates
            changed_metadata(path, lambda known: [mutate_index(known, random.Random(seed)) for _, seed in steps])
        capture = plausible(in_time(read_ncore(root), root.name), root.name)
        check_capture(recentred(capture), root.name)
        for frame in (*capture.images, *capture.sweeps):
            frame.load()
    finally:
        overwrite(path, files[path])
