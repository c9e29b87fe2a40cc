# SPDX-License-Identifier: Apache-2.0
"""What the reader found out about the files of a drive: points that were cut away, an order that says too little."""

from collections.abc import Iterator

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict

NAME = "files and their lidar"


def check_notes(sample: Sample) -> Iterator[Verdict]:
    capture = sample.capture
    for note in capture.notes:
        yield Verdict(NAME, capture.lidars[0].name, Level.LIKELY, note)
