# SPDX-License-Identifier: Apache-2.0
"""Frames with exchanged poses: within each the rig goes back, although it goes ahead from frame to frame."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from nurec_lite.capture.checks.conventions import MADE
from nurec_lite.capture.checks.paths import FEWEST, NAME, Path
from nurec_lite.capture.checks.verdict import Level, Verdict

LEAST = 0.02  # metres that the rig moves within a frame that tells anything
MOST = 0.9  # of these frames: the rig goes back in as many, at least
BACK = "ends_back_m"  # figure of these verdicts alone


def exchanged_ends(paths: Sequence[Path]) -> Iterator[Verdict]:
    """One verdict about all sensors with such frames."""
    seen = [(path.sensor, _back(path)) for path in paths]
    odd = [(name, b) for name, b in seen if len(b) >= FEWEST and float((b > 0).double().mean()) >= MOST]
    if odd:
        names, metres = " and ".join(name for name, _ in odd), float(torch.cat([back for _, back in odd]).median())
        sentence = f"Within frames of {names} the poses go back by {metres:.2f} m, but ahead from frame to frame."
        remedy = f"exchange T_world_rig_start and T_world_rig_end of these frames {MADE}"
        yield Verdict(NAME, odd[0][0], Level.LIKELY, sentence, remedy, {BACK: metres})


def _back(path: Path) -> Tensor:  # [n] metres that the rig goes back within each frame
    first, last = (
        torch.stack([getattr(f, f"T_world_rig_{end}")[:3, 3] for f in path.frames]) for end in ("start", "end")
    )
    within, between = (last - first)[1:-1], path.steps[1:] + path.steps[:-1]
    moves = (within.norm(dim=1) > LEAST) & (between.norm(dim=1) > LEAST)
    return -(within * between).sum(1)[moves] / between.norm(dim=1)[moves]
