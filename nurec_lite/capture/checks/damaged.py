# SPDX-License-Identifier: Apache-2.0
"""JPEG files with a damaged middle, or without one half: their decoder makes the lost pixels grey and says so in a warning alone."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from nurec_lite.base.errors import UserError
from nurec_lite.capture.checks.glimpses import copy_of, glimpse_runs
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level, Verdict
from nurec_lite.capture.types import ImageFrame
from nurec_lite.capture.without import leave_out


def damaged_images(sample: Sample, frames: Sequence[ImageFrame], check: str) -> Iterator[Verdict]:
    """A verdict about the images of one camera that lack pixels, of those with small copies."""
    looked = [frame for run in glimpse_runs(sample, frames) for frame in run if isinstance(frame, ImageFrame)]
    damaged = {frame.index: words for frame in looked if (words := _damage(sample, frame)) is not None}
    if damaged:
        first, words = next(iter(damaged.items()))
        sentence = f"Image {first} of {frames[0].sensor} lacks pixels (libjpeg: {words})"
        more = f"; {len(damaged) - 1} more of the {len(looked)} images that were looked at do, too"
        sentence += f"{more * (len(damaged) > 1)}. Lost pixels are grey."
        remedy = f"copy {'them' if len(damaged) > 1 else 'it'} again from its source, or {leave_out(frames[0].sensor, damaged)}"
        yield Verdict(check, frames[0].sensor, Level.LIKELY, sentence, remedy, {"image": float(first)})


def _damage(sample: Sample, frame: ImageFrame) -> str | None:
    with suppress(UserError):  # another check reports it
        copy = copy_of(sample, frame)
        return None if copy is None else copy.damage
    return None
