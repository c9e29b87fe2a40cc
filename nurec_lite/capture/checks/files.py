# SPDX-License-Identifier: Apache-2.0
"""Mistakes in rows and stamps that the reader noticed in the files of a drive."""

from collections.abc import Iterator

from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict

NAME = "rows, stamps and frames"


def check_files(sample: Sample) -> Iterator[Verdict]:
    for doubt in sample.capture.doubts:
        level = Level.CERTAIN if doubt.certain else Level.LIKELY
        yield Verdict(NAME, doubt.subject, level, doubt.sentence, doubt.remedy)
