# SPDX-License-Identifier: Apache-2.0
"""Findings of the reader about a drive's files: rows, stamps, removed points. A pack keeps the findings of its source's reader."""

from collections.abc import Iterator

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict

NAME = "files of the drive"


def check_files(sample: Sample) -> Iterator[Verdict]:
    for doubt in sample.capture.doubts:
        level = Level.CERTAIN if doubt.certain else Level.LIKELY
        yield Verdict(NAME, doubt.subject, level, doubt.sentence, doubt.remedy)
