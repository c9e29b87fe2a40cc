# SPDX-License-Identifier: Apache-2.0
"""USDZ: one package below 4 GiB, as its zip demands, or several parts and a text that joins them."""

import errno
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.files import write_text, written
from nurec_lite.base.folders import check_file
from nurec_lite.capture.types import Capture
from nurec_lite.geometry.tracks import spans
from nurec_lite.output.interchange.choice import ALL, EACH, STATIC, Choice, actor, is_actor
from nurec_lite.output.interchange.flatten import PlainGaussians, in_own_frame, without_broken
from nurec_lite.output.interchange.names import USDZ, Files
from nurec_lite.output.interchange.notes import Notes, lost_of_usd
from nurec_lite.output.interchange.usd import (
    ROOT,
    SKY,
    UsdScene,
    add_actors,
    add_gaussians,
    add_mesh,
    add_sky,
    describe_stage,
    is_placed,
    pxr,
)
from nurec_lite.output.interchange.usd_rig import add_rig
from nurec_lite.output.surface.mesh import Mesh
from nurec_lite.scene.gaussians import BACKGROUND
from nurec_lite.scene.scene import Scene

MOST_PARTS = 1000
LARGEST = (1 << 32) - (1 << 26)  # bytes of a package, with room for everything but Gaussians
_LAYER = "nurec_lite.usdc"  # the first file of a package: it marks ours
_JOINT = re.compile(rb"#usda 1.0\n.*dictionary nurec_lite = \{", re.DOTALL)


def check_usd(choice: Choice, files: Files) -> None:
    """Raises ConfigError if USD cannot hold the choice, or the package is missing; OutputError if the file is not ours."""
    pxr()
    if choice.time is not None:
        raise ConfigError("formats=usdz holds the whole drive, not one moment; leave time out, or use formats=ply")
    check_file(files.path(USDZ), is_usdz)
    check_file(_joint(files), is_joint)


def write_usd(
    scene: Scene,
    choice: Choice,
    files: Files,
    capture: Capture | None,  # None: without cameras and lidars
    meshes: Mapping[str, Mesh],
    largest: int = LARGEST,  # bytes
) -> list[str]:
    """Writes the package, or its parts; returns a line for each file."""
    content, broken = _content(scene, choice, capture, meshes)
    shares = _shares(content, largest)
    path = files.path(USDZ)
    parts = [path] if len(shares) == 1 else [_part(files, i) for i in range(len(shares))]
    for i, (share, part) in enumerate(zip(shares, parts, strict=True)):
        check_file(part, is_usdz)
        _write_package(part, scene, replace(content, background=share), capture, i)
    lines = [_line(part, share, content, i) for i, (share, part) in enumerate(zip(shares, parts, strict=True))]
    if len(parts) > 1:
        write_text(_joint(files), _joint_text(content, parts))
        lines.append(f"{_joint(files)}: joins the {len(parts)} parts, which must lie next to it; open this one")
    if broken:
        lines.append(f"left out: {broken} Gaussians with values that are not finite, or a rotation of length zero")
    return lines


def is_usdz(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as ours do."""
    return head.startswith(b"PK\x03\x04") and head[30:].startswith(_LAYER.encode())


def is_joint(
    head: bytes,  # of a file
) -> bool:
    """Whether it begins as ours do."""
    return _JOINT.match(head) is not None


def _content(scene: Scene, choice: Choice, capture: Capture | None, meshes: Mapping[str, Mesh]) -> tuple[UsdScene, int]:
    """The contents, and the number of Gaussians that are broken."""
    asset = actor(scene.tracks, choice.node) if is_actor(choice.node) else None
    every = range(1, len(scene.tracks) + 1) if choice.node in (ALL, EACH) else () if asset is None else (asset,)
    nodes = [node for node in every if node not in choice.removed and (asset or is_placed(scene, node - 1))]
    given = {node: in_own_frame(scene, node) for node in (*nodes, *(() if asset else (BACKGROUND,)))}
    kept = {node: without_broken(g) for node, g in given.items()}
    broken = sum(len(given[node]) - len(kept[node]) for node in given)
    first, last = _span(scene, None if asset else capture)
    notes = Notes(lost_of_usd(scene), origin=(0.0, 0.0, 0.0) if asset else scene.origin)
    background = kept.pop(BACKGROUND, None)
    return UsdScene(background, kept, notes, first, last, meshes, animated=asset is None, sky=asset is None), broken


def _span(scene: Scene, capture: Capture | None) -> tuple[float, float]:
    """Seconds: of the frames, or as far as tracks tell."""
    if capture is not None:
        frames = (*capture.images, *capture.sweeps)
        return min(frame.time_start for frame in frames), max(frame.time_end for frame in frames)
    if len(scene.tracks) == 0:
        return 0.0, 0.0
    first, last = spans(scene.tracks)
    return float(first.min()), float(last.max())


def _shares(content: UsdScene, largest: int) -> list[PlainGaussians | None]:
    """The background in parts that fit, each a slab of the world along its longer side."""
    g = content.background
    if g is None:
        return [None]
    room = largest - sum(len(a) * _row(a) for a in content.actors.values())
    room -= sum(mesh.vertices.nbytes * 2 + mesh.triangles.nbytes * 2 for mesh in content.meshes.values())
    rows = room // _row(g)
    if rows >= len(g):
        return [g]
    if rows * MOST_PARTS < len(g):
        raise ConfigError(
            "actors and meshes leave no room for Gaussians in packages of 4 GiB; leave ground and surface out of formats, "
            f"or export node={STATIC} and each actor by itself"
        )
    ends = torch.quantile(
        g.means[:: len(g) // 100_000 + 1, :2].float(), g.means.new_tensor([0.01, 0.99], dtype=torch.float32), dim=0
    )
    order = g.means[:, int((ends[1] - ends[0]).argmax())].argsort()
    return [_rows(g, order[first : first + rows]) for first in range(0, len(g), rows)]


def _row(g: PlainGaussians) -> int:
    """Bytes of a Gaussian."""
    return 4 * (11 + 3 * g.sh.shape[1])


def _rows(g: PlainGaussians, index: torch.Tensor) -> PlainGaussians:
    return PlainGaussians(**{f.name: getattr(g, f.name)[index] for f in fields(g)})


def _write_package(path: Path, scene: Scene, content: UsdScene, capture: Capture | None, number: int) -> None:
    with written(path) as file, TemporaryDirectory(prefix=".nurec_lite-usd-", dir=path.parent) as name:
        folder = Path(name)
        try:
            _write_layer(folder, scene, content, capture, number)
            _pack(Path(file.name), [member for member in (folder / _LAYER, folder / SKY) if member.exists()])
        except pxr().Tf.ErrorException as error:
            raise OSError(errno.EIO, "USD could not write all of it; is the disk full?") from error


def _write_layer(folder: Path, scene: Scene, content: UsdScene, capture: Capture | None, number: int) -> None:
    stage = pxr().Usd.Stage.CreateNew(str(folder / _LAYER))
    describe_stage(stage, content)
    if content.background is not None:
        add_gaussians(stage, f"{ROOT}/background{f'_{number}' if number else ''}", content.background)
    if number == 0:
        _add_rest(stage, scene, content, capture, folder)
    stage.GetRootLayer().Save()


def _add_rest(stage: object, scene: Scene, content: UsdScene, capture: Capture | None, folder: Path) -> None:
    add_actors(stage, scene, content)
    if content.sky:
        add_sky(stage, scene, folder)
    for name, mesh in content.meshes.items():
        add_mesh(stage, name, mesh)
    if capture is not None and content.animated:
        add_rig(stage, scene, capture, content)


def _pack(path: Path, members: Sequence[Path]) -> None:
    """A zip of stored files, each at a multiple of 64 bytes."""
    writer = pxr().Sdf.ZipFileWriter.CreateNew(str(path))
    added = [writer.AddFile(str(member), member.name) for member in members]
    if not (all(added) and writer.Save()):
        raise OSError(errno.EIO, "USD could not write the package; is the disk full?")


def _joint(files: Files) -> Path:
    return files.beside(".usda")


def _part(files: Files, i: int) -> Path:
    return files.path(USDZ, f"part{i + 1}")


def _joint_text(content: UsdScene, parts: Sequence[Path]) -> str:
    """A layer of text that lays the parts over one another."""
    stage = pxr().Usd.Stage.CreateInMemory("joint.usda")
    describe_stage(stage, content)
    layer = stage.GetRootLayer()
    layer.subLayerPaths = [f"./{part.name}" for part in parts]
    text: str = layer.ExportToString()
    return text


def _line(path: Path, background: PlainGaussians | None, content: UsdScene, number: int) -> str:
    count = (0 if background is None else len(background)) + (0 if number else sum(map(len, content.actors.values())))
    what = f"; {len(content.actors)} actor{'s' * (len(content.actors) != 1)}" if number == 0 else ""
    return f"{path}: {count} Gaussian{'s' * (count != 1)}, {path.stat().st_size} bytes{what}"
