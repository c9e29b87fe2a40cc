# SPDX-License-Identifier: Apache-2.0
"""Gaussians as PLY, plain as viewers of 3DGS read it or compressed as SuperSplat does, through gsplat's exporter
(gsplat/exporter.py of 1.5.3).

Plain properties, all float: x y z, nx ny nz if asked for, f_dc_0..2, f_rest_* (all coefficients of red, then green, then blue), opacity
(logit), scale_0..2 (logarithms), rot_0..3 (wxyz). Readers that go by names do not miss normals. Readers of a fixed layout expect those of
3DGS, which are 0.
"""

import re
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from nurec_lite.output.interchange.flatten import PlainGaussians
from nurec_lite.output.interchange.notes import MADE, Notes

_FORMAT = b"ply\nformat binary_little_endian 1.0\n"
_NAMES = (b"x", b"y", b"z", b"f_dc_0")
_UNMARKED = re.compile(  # the head of an earlier version's file
    re.escape(_FORMAT)
    + rb"(comment origin [^\n]*\n)?element vertex [0-9]+\n"
    + b"".join(b"property float %s\n" % name for name in _NAMES)
)
_MARKED = re.compile(re.escape(_FORMAT) + rb"(comment [^\n]*\n)*?comment " + MADE.encode())
_NORMALS = b"".join(b"property float n%s\n" % axis for axis in (b"x", b"y", b"z"))


def ply_bytes(
    g: PlainGaussians,  # as `without_broken` leaves them: at one opacity that is not finite the exporter would drop all
    notes: Notes,  # become comments: in single precision the sum with an origin would be off by half a metre in UTM
    normals: bool = False,  # adds nx ny nz
) -> bytes:
    """The content of a plain file."""
    data = _exported(g, "ply")
    assert data.startswith(_FORMAT + b"element vertex %d\n" % len(g)), "some were dropped"
    return commented(_with_normals(data, len(g)) if normals else data, notes)


def compressed_ply_bytes(
    g: PlainGaussians,  # as for `ply_bytes`
    notes: Notes,
) -> bytes:
    """The content of a compressed file, sorted by place; Gaussians with opacity up to 1/255, which no renderer draws, are left out."""
    data = _exported(g, "ply_compressed")
    if g.sh.shape[1] == 1:  # SuperSplat refuses the element without a property that the exporter writes
        data = re.sub(rb"element sh [0-9]+\n", b"", data, count=1)
    return commented(data, notes)


def is_drawn(g: PlainGaussians) -> Tensor:  # [N]
    """Whether a renderer draws each: compressed files leave the others out."""
    return torch.sigmoid(g.opacity_logits) > 1 / 255


def count_in(data: bytes) -> int:
    """Number of Gaussians that a file of ours holds."""
    found = re.search(rb"\nelement vertex ([0-9]+)\n", data)
    assert found is not None
    return int(found[1])


def is_ply(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as ours do."""
    return _MARKED.match(head) is not None or _UNMARKED.match(head) is not None


def commented(data: bytes, notes: Notes) -> bytes:
    """The file with the notes as comments."""
    lines = "".join(f"comment {line}\n" for line in notes.lines())
    return data.replace(_FORMAT, _FORMAT + lines.encode("ascii", "replace"), 1)


def _with_normals(data: bytes, count: int) -> bytes:
    header, end, body = data.partition(b"end_header\n")
    rows = np.frombuffer(body, "<f4").reshape(count, header.count(b"property float"))
    wide = np.insert(rows, (3, 3, 3), np.float32(0), axis=1)
    return header.replace(b"property float f_dc_0\n", _NORMALS + b"property float f_dc_0\n") + end + wide.tobytes()


def _exported(g: PlainGaussians, kind: str) -> bytes:
    from gsplat import export_splats  # here: it loads the whole package, which nothing else needs

    if not is_drawn(g).any() and (kind != "ply" or len(g) == 0):
        return _empty(g, kind)
    tensors = (g.means, g.log_scales, g.quats, g.opacity_logits, g.sh[:, :1], g.sh[:, 1:])
    data: bytes = export_splats(*(t.detach().cpu() for t in tensors), format=kind)
    return data


def _empty(g: PlainGaussians, kind: str) -> bytes:
    """File without Gaussians, which the exporter cannot make: the header of one Gaussian, with the numbers replaced."""
    one = PlainGaussians(**{f.name: torch.ones(1, *getattr(g, f.name).shape[1:]) for f in fields(g)})
    header, end, _ = _exported(one, kind).partition(b"end_header\n")
    return re.sub(rb"(element \w+) 1\n", rb"\1 0\n", header) + end
