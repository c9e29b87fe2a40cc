# SPDX-License-Identifier: Apache-2.0
"""Gaussians as a checkpoint of gsplat's trainer, the only file that gsplat's viewer opens:
`python simple_viewer.py --ckpt scene.pt` (examples of gsplat; nerfview's README).

`splats` holds means, quats (wxyz), scales (logarithms), opacities (logits), sh0 [N, 1, 3] and shN [N, S - 1, 3], as float32.
"""

import io

import torch
from torch import Tensor

from nurec_lite.output.interchange.flatten import PlainGaussians
from nurec_lite.output.interchange.notes import MADE, Notes

_ZIP = b"PK\x03\x04"


def gsplat_bytes(
    g: PlainGaussians,
    notes: Notes,
) -> bytes:
    """The content of the file."""
    splats = {
        "means": g.means, "quats": g.quats, "scales": g.log_scales, "opacities": g.opacity_logits,
        "sh0": g.sh[:, :1], "shN": g.sh[:, 1:],
    }  # fmt: skip
    file = io.BytesIO()
    torch.save({"notes": notes.lines(), "step": 0, "splats": {k: _plain(v) for k, v in splats.items()}}, file)
    return file.getvalue()


def is_gsplat(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as ours do: the notes are the first values."""
    return head.startswith(_ZIP) and MADE.encode() in head


def _plain(values: Tensor) -> Tensor:
    """A copy of its own: a view would be stored with all that it looks at."""
    return values.detach().float().cpu().clone(memory_format=torch.contiguous_format)
