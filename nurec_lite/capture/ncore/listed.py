# SPDX-License-Identifier: Apache-2.0
"""The list of a sequence's stores, with checksums and components: NAME.json beside NAME.zarr.itar. Programs ask for it or for stores."""

import json
from pathlib import Path

from nurec_lite.base.files import write_text
from nurec_lite.capture.ncore.own import KEY

ENDING = ".zarr.itar"


def list_path(store: Path) -> Path:
    return store.with_name(f"{store.name.removesuffix(ENDING)}.json")


def is_list(
    head: bytes,  # of a file
) -> bool:
    """Whether a file is a list that we wrote."""
    return b'"sequence_id"' in head and f'"{KEY}"'.encode() in head


def write_list(store: Path) -> None:
    from ncore.data.v4 import SequenceComponentGroupsReader

    known = SequenceComponentGroupsReader([store]).get_sequence_meta().to_dict()
    write_text(list_path(store), json.dumps(known, indent=2) + "\n")
