# SPDX-License-Identifier: Apache-2.0
"""Meshes of a scene: made from rendered depth, and written as PLY."""

from collections.abc import Mapping

import numpy as np

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import written
from nurec_lite.base.folders import check_file
from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture
from nurec_lite.output.interchange.flatten import UPS
from nurec_lite.output.interchange.names import GROUND, MESHES, SURFACE, Files
from nurec_lite.output.interchange.notes import NO_MAP, Notes
from nurec_lite.output.interchange.ply import commented, is_ply
from nurec_lite.output.surface.fusion import FieldTooLargeError, fused
from nurec_lite.output.surface.ground import ground_of
from nurec_lite.output.surface.hits import hits_of
from nurec_lite.output.surface.mesh import Mesh
from nurec_lite.output.surface.surface_nets import surface_of
from nurec_lite.scene.scene import Scene
from nurec_lite.training.stages import Stages

_LOST = ("actors are left out: the mesh holds the static scene", NO_MAP)
_VERTEX = [("x", "<f4"), ("y", "<f4"), ("z", "<f4")]
_COLOUR = [("red", "u1"), ("green", "u1"), ("blue", "u1")]
_TYPES = {"f": "float", "u": "uchar"}


def check_meshes(files: Files) -> None:
    """Raises OutputError if a file is not ours."""
    for name in MESHES:
        if name in files.formats:
            check_file(files.path(name, name), is_ply)


def made_meshes(stages: Stages, scene: Scene, capture: Capture, files: Files, cell: float) -> dict[str, Mesh]:
    """The meshes that are asked for, by their names; ConfigError where the rendered depth holds no surface, or the cell does not fit."""
    try:
        surface = surface_of(fused(hits_of(stages, scene, capture), cell), cell)
    except FieldTooLargeError:
        raise ConfigError(f"cell={cell:g} is too small for a scene of this size; give a larger cell") from None
    if not len(surface.triangles):
        raise ConfigError("no surface was found in the rendered depth; train longer, or give a larger cell")
    found = {SURFACE: surface}
    if GROUND in files.formats:
        found[GROUND] = ground_of(surface, trajectory_of(capture).poses[:, :3, 3].numpy(), 2 * cell)
    return {name: found[name] for name in MESHES if name in files.formats}


def write_meshes(scene: Scene, meshes: Mapping[str, Mesh], files: Files, up: str) -> list[str]:
    """Writes a PLY of each; returns a line for each."""
    lines = []
    for name, mesh in meshes.items():
        path, data = files.path(name, name), mesh_bytes(mesh, Notes(_LOST, up, scene.origin))
        with written(path) as file:
            file.write(data)
        lines.append(f"{path}: {name} of {len(mesh.triangles)} triangles, {len(data)} bytes")
    return lines


def mesh_bytes(mesh: Mesh, notes: Notes) -> bytes:
    """PLY 1.0 (Turk 1994), binary."""
    vertices = np.zeros(len(mesh.vertices), _VERTEX + ([] if mesh.colours is None else _COLOUR))
    for name, values in zip("xyz", (mesh.vertices @ _turn(notes.up).T).T, strict=True):
        vertices[name] = values
    if mesh.colours is not None:
        for name, values in zip(("red", "green", "blue"), mesh.colours.T, strict=True):
            vertices[name] = values
    faces = np.zeros(len(mesh.triangles), [("count", "u1"), ("rows", "<i4", 3)])
    faces["count"], faces["rows"] = 3, mesh.triangles
    names = vertices.dtype.names or ()
    properties = [f"property {_TYPES[vertices.dtype[name].kind]} {name}" for name in names]
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(vertices)}", *properties]
    header += [f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header", ""]
    return commented("\n".join(header).encode() + vertices.tobytes() + faces.tobytes(), notes)


def _turn(up: str) -> np.ndarray:
    """[3, 3] from the scene's axes to those with another one up."""
    w, x, _, _ = UPS[up]
    sine, cosine = 2 * w * x, w * w - x * x  # about x
    return np.array([[1, 0, 0], [0, cosine, -sine], [0, sine, cosine]])
