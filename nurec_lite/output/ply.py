# SPDX-License-Identifier: Apache-2.0
"""Gaussians as the PLY file that viewers of 3DGS read, through gsplat's exporter (gsplat/exporter.py of 1.5.3).

Its properties, all float: x y z, f_dc_0..2, f_rest_* (all coefficients of red, then green, then blue), opacity (logit), scale_0..2
(logarithms), rot_0..3 (wxyz). There are no normals, which viewers that go by the names do not miss.
"""

import re

import torch

from nurec_lite.capture.types import Origin
from nurec_lite.output.flatten import PlainGaussians

_FORMAT = b"ply\nformat binary_little_endian 1.0\n"
_BEGINS = re.compile(
    re.escape(_FORMAT)
    + rb"(comment origin [^\n]*\n)?element vertex [0-9]+\n"
    + b"".join(b"property float %s\n" % name for name in (b"x", b"y", b"z", b"f_dc_0"))
)


def ply_bytes(
    g: PlainGaussians,  # as `without_broken` leaves them: at one opacity that is not finite the exporter would drop all
    origin: Origin = (
        0.0,
        0.0,
        0.0,
    ),  # metres, which a comment tells: in single precision the sum would be off by half a metre in UTM
) -> bytes:
    """The file's content."""
    data = _plain_bytes(g)
    return data if not any(origin) else data.replace(_FORMAT, _FORMAT + origin_comment(origin).encode() + b"\n", 1)


def is_export(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as ours do. The format has no place for a mark that all viewers pass over."""
    return _BEGINS.match(head) is not None


def origin_comment(origin: Origin) -> str:
    return (
        f"comment origin {' '.join(f'{metres:.3f}' for metres in origin)}: add it to x y z for the world of the capture"
    )


def _plain_bytes(g: PlainGaussians) -> bytes:
    from gsplat import export_splats  # here: it loads the whole package, which nothing else needs

    if len(g) == 0:
        return _empty(g)
    tensors = (g.means, g.log_scales, g.quats, g.opacity_logits, g.sh[:, :1], g.sh[:, 1:])
    data: bytes = export_splats(*(t.detach().cpu() for t in tensors), format="ply")
    assert data.startswith(_FORMAT + b"element vertex %d\n" % len(g)), "some were dropped"
    return data


def _empty(g: PlainGaussians) -> bytes:
    """The exporter cannot reshape nothing: the header of one Gaussian, with the number replaced."""
    one = PlainGaussians(**{name: torch.zeros(1, *value.shape[1:]) for name, value in vars(g).items()})
    header, end, _ = _plain_bytes(one).partition(b"end_header\n")
    return header.replace(b"element vertex 1\n", b"element vertex 0\n") + end
