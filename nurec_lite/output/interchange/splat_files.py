# SPDX-License-Identifier: Apache-2.0
"""Writes parts of a scene as files of Gaussians, and for each node by itself the trajectories of actors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import write_text, written
from nurec_lite.base.folders import check_file
from nurec_lite.output.interchange.choice import EACH, Choice, Part, parts_of
from nurec_lite.output.interchange.flatten import UPS, PlainGaussians, in_axes, without_broken
from nurec_lite.output.interchange.gsplat_file import gsplat_bytes, is_gsplat
from nurec_lite.output.interchange.names import COMPRESSED, GSPLAT, MESHES, PLY, SPLATS, SPZ, Files, fit_for_a_file
from nurec_lite.output.interchange.notes import Notes, lost_of_splats
from nurec_lite.output.interchange.ply import compressed_ply_bytes, count_in, is_drawn, is_ply, ply_bytes
from nurec_lite.output.interchange.spz import UP, is_spz, spz_bytes
from nurec_lite.output.interchange.trajectories import is_trajectories, trajectories_text
from nurec_lite.scene.gaussians import BACKGROUND
from nurec_lite.scene.scene import Scene

IS_OURS: dict[str, Callable[[bytes], bool]] = {PLY: is_ply, COMPRESSED: is_ply, SPZ: is_spz, GSPLAT: is_gsplat}
_TRAJECTORIES = "-trajectories.json"


@dataclass(frozen=True)
class Layout:
    """Values of the keys `up` and `normals`."""

    up: str | None  # of `flatten.UPS`; None: that of each format
    normals: bool

    def up_of(self, kind: str) -> str:
        return self.up or (UP if kind == SPZ else "z")


def check_layout(layout: Layout) -> None:
    if layout.up is not None and layout.up not in UPS:
        raise ConfigError(f"up={layout.up}, but must be one of {', '.join(UPS)}")


def write_splats(scene: Scene, choice: Choice, layout: Layout, files: Files) -> list[str]:
    """Writes the files; returns a line for each, and lines on parts that are left out."""
    kinds, parts = [kind for kind in SPLATS if kind in files.formats], parts_of(scene, choice)
    names = _names(scene, parts, each=choice.node == EACH)
    places = [(part, kind, files.path(kind, name)) for part, name in zip(parts, names, strict=True) for kind in kinds]
    for part, kind, path in places:
        check_file(path, IS_OURS[kind])
        if choice.node != EACH:
            _check_filled(part, kind, path)
    lines = [line for part, kind, path in places for line in _write(scene, part, kind, layout, path)]
    if choice.node == EACH:
        lines += _write_trajectories(scene, parts, names, layout, files, kinds[0])
    if any(scene.origin) and any(any(part.origin) for part in parts):
        metres = ", ".join(f"{value:.3f}" for value in scene.origin)
        lines.append(f"origin: add {metres} m for the world of the capture, as a comment tells")
    return lines


def _names(scene: Scene, parts: Sequence[Part], each: bool) -> list[str]:
    """The part of each file's name that tells nodes apart."""
    if not each:
        return [""]
    names = list(MESHES)  # parts of other files' names
    for part in parts:
        assert part.node is not None
        name = fit_for_a_file("background" if part.node == BACKGROUND else scene.tracks.ids[part.node - 1])
        names.append(f"{name}-{part.node}" if name in names else name)
    return names[len(MESHES) :]


def _check_filled(part: Part, kind: str, path: Path) -> None:
    g = without_broken(part.gaussians)
    if kind != PLY and not (is_drawn(g).any() if kind == COMPRESSED else len(g)):
        raise ConfigError(
            f"{part.what}: no Gaussian would be in {path.name}, and readers of {kind} refuse an empty file; use ply"
        )


def _write(scene: Scene, part: Part, kind: str, layout: Layout, path: Path) -> list[str]:
    kept = without_broken(part.gaussians)
    up = layout.up_of(kind)
    notes = Notes(lost_of_splats(scene, part.still), up, part.origin)
    data, count = _encoded(in_axes(kept, up), kind, notes, layout.normals)
    if count == 0 and kind != PLY:
        return [f"{path}: not written, as no Gaussian would be in it; {part.what}"]
    with written(path) as file:
        file.write(data)
    lines = [f"{path}: {count} Gaussian{'s' * (count != 1)}, {len(data)} bytes; {part.what}"]
    if broken := len(part.gaussians) - len(kept):
        lines.append(f"left out: {broken} Gaussians with values that are not finite, or a rotation of length zero")
    if faint := len(kept) - count:
        lines.append(f"left out: {faint} Gaussians with an opacity up to 1/255, which no renderer draws")
    return lines


def _encoded(g: PlainGaussians, kind: str, notes: Notes, normals: bool) -> tuple[bytes, int]:
    """The file and the number of its Gaussians."""
    if kind in (SPZ, GSPLAT):
        return (spz_bytes if kind == SPZ else gsplat_bytes)(g, notes), len(g)
    data = ply_bytes(g, notes, normals) if kind == PLY else compressed_ply_bytes(g, notes)
    return data, count_in(data)


def _write_trajectories(
    scene: Scene, parts: Sequence[Part], names: Sequence[str], layout: Layout, files: Files, kind: str
) -> list[str]:
    path, up = files.beside(_TRAJECTORIES), layout.up_of(kind)
    check_file(path, is_trajectories)
    nodes = [part.node for part in parts if part.node is not None]
    paths = [files.path(kind, name) for name in names]
    own = {node: path.name for node, path in zip(nodes, paths, strict=True) if path.exists()}
    write_text(path, trajectories_text(scene, nodes, own, Notes(lost_of_splats(scene, False), up, scene.origin)))
    return [f"{path}: trajectories of {len(parts) - 1} actors"]
