# SPDX-License-Identifier: Apache-2.0
"""Stores of NCore with other metadata, and a function that reads all of a sequence."""

import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cbor2
from mutations import overwrite

from nurec_lite.capture.check import check_capture
from nurec_lite.capture.ncore.read import read_ncore
from nurec_lite.capture.ncore.store import BLOCK, HEADER, METADATA, open_store


def changed_metadata(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Rewrites the metadata of a store; the new one stands after everything else, with an index of its own."""
    store = open_store(path)
    known = dict(store.described)
    change(known)
    data = path.read_bytes() + b"\0" * (-path.stat().st_size % BLOCK)
    at = {name: (span.offset, span.size) for name, span in store.spans.items()}
    plain = lzma.compress(cbor2.dumps({"zarr_consolidated_format": 1, "metadata": known}))
    at[METADATA] = (len(data), len(plain))
    overwrite(path, with_index(data + plain, at))


def with_index(data: bytes, at: dict[str, tuple[int, int]]) -> bytes:
    names = list(at)
    index = {"items": names, "offset_datas": [at[n][0] for n in names], "sizes": [at[n][1] for n in names]}
    packed = lzma.compress(cbor2.dumps(index))
    padded = data + packed
    return padded + b"\0" * (-len(padded) % BLOCK) + HEADER.pack(b"itar", 1, len(data), len(packed)).ljust(BLOCK, b"\0")


def read_whole(root: Path) -> None:
    capture = read_ncore(root)
    check_capture(capture, root.name)
    for frame in (*capture.images, *capture.sweeps):
        frame.load()
