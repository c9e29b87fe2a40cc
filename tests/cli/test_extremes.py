# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with values at the edge of the schema: a picture, a measurement or a sentence, never a crash."""

import shutil
from pathlib import Path

import pytest
import torch
from shell import Shell
from strangers import SCENE, put, rewrite

EXTREMES = {
    "far away": put(*SCENE, "means", value=lambda t: t * 0 + 1e8),
    "in one point": put(*SCENE, "means", value=lambda t: t * 0),
    "huge": put(*SCENE, "log_scales", value=lambda t: t * 0 + 40),
    "tiny": put(*SCENE, "log_scales", value=lambda t: t * 0 - 40),
    "unturned": put(*SCENE, "quats", value=lambda t: t * 0),
    "opaque": put(*SCENE, "opacity_logits", value=lambda t: t * 0 + 1e6),
    "bright": put(*SCENE, "sh_rest", value=lambda t: t * 0 + 1e6),
    "a bright sky": put(*SCENE, "sky", value=lambda t: t * 0 + 1e6),
    "exposed": put(*SCENE, "exposure", value=lambda t: t * 0 + 1e6),
    "tracks far away": put(*SCENE, "track_translations", value=lambda t: t * 0 + 1e8),
    "tracks of short quaternions": put(*SCENE, "track_quaternions", value=lambda t: t * 0.01),
    "all of one node": put("scene", "node", value=lambda t: torch.zeros_like(t) + 4),
}


@pytest.mark.parametrize(
    ("ops", "extreme"),
    [*(("native", name) for name in EXTREMES), *(("reference", name) for name in ("far away", "huge", "opaque"))],
)
def test_an_extreme(shell: Shell, quick: Path, tmp_path: Path, ops: str, extreme: str) -> None:
    path = Path(shutil.copy(quick, tmp_path))
    rewrite(path, EXTREMES[extreme])
    verbs = {"evaluate": []} if ops == "reference" else {"evaluate": [], "render": ["times=0.5"], "export": []}
    for verb, more in verbs.items():
        out = tmp_path / ("out.ply" if verb == "export" else verb)
        ended = shell(verb, f"checkpoint={path}", f"out={out}", f"ops={ops}", *more)
        assert ended.code == 0 or (ended.code == 2 and "error: " in ended.error), ended.error
