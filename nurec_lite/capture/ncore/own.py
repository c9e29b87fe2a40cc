# SPDX-License-Identifier: Apache-2.0
"""Parts of a capture without a place in NCore: a record of ours among the metadata, which `pack format=ncore` writes
and the reader looks for. Other programs leave it alone."""

from nurec_lite.capture.ncore.fields import LATEST_US
from nurec_lite.capture.pack.check import (
    DOUBT,
    LIDAR,
    MOST_FRAMES,
    UNUSED,
    array,
    flag,
    many,
    name,
    number,
    one_of,
    record,
    whole,
)
from nurec_lite.capture.types import CHOSEN

KEY = "nurec_lite"  # among generic_meta_data
VERSION = 1


SEQUENCE = record(
    {"searched": flag, "left_out": many(UNUSED)},
    version=whole(VERSION, VERSION), name=name, zero_us=whole(0, LATEST_US), origin=array(3), margin=number,
    cameras=many(name), lidars=many(LIDAR), doubts=many(DOUBT), poses=one_of(None, CHOSEN),
)  # fmt: skip
FRAME = record(index=whole(0, MOST_FRAMES), start_us=whole(0, LATEST_US), end_us=whole(0, LATEST_US))
