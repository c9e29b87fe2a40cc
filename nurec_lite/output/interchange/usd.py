# SPDX-License-Identifier: Apache-2.0
"""A scene as a USD stage: Gaussians as ParticleField3DGaussianSplat (OpenUSD 26.03), actors on their tracks, sky, meshes.

Harmonics stay in the axes of their node and have the signs of 3DGS: the schema says nothing of either. Time codes count from the first
second of the drive, 30 a second. Between two keyframes USD moves actors as `interpolate` does, by lerp and slerp.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import imageio.v3 as imageio
import numpy as np
import torch

from nurec_lite.base.errors import ConfigError
from nurec_lite.geometry.se3 import quat_normalize
from nurec_lite.geometry.tracks import spans
from nurec_lite.output.interchange.flatten import PlainGaussians
from nurec_lite.output.interchange.notes import Notes
from nurec_lite.output.surface.mesh import Mesh
from nurec_lite.scene.scene import Scene

CODES = 30.0  # time codes a second
ROOT = "/World"
SKY = "sky.png"
_MODULES = ("Gf", "Sdf", "Tf", "Usd", "UsdGeom", "UsdLux", "UsdVol", "Vt")
_SKY_TURN = (0.5, 0.5, 0.5, 0.5)  # takes the dome's y up, z ahead and x left to z up, x ahead and y left
_AFTER = 1e-6  # seconds that an actor outlives its last moment


@dataclass(frozen=True)
class UsdScene:
    """Contents of a stage."""

    background: PlainGaussians | None
    actors: Mapping[int, PlainGaussians]  # by their nodes
    notes: Notes
    first: float  # seconds, of time code 0
    last: float
    meshes: Mapping[str, Mesh] = field(default_factory=dict)
    animated: bool = True  # else actors stand in their own frames
    sky: bool = True


def pxr() -> SimpleNamespace:
    """Modules of the package pxr; ConfigError where the extra `usd` is not installed."""
    try:
        found = SimpleNamespace(**{name: import_module(f"pxr.{name}") for name in _MODULES})
    except ImportError as error:
        raise ConfigError("formats=usdz needs the extra `usd`, which is not installed: pip install usd-core") from error
    if not hasattr(found.UsdVol, "ParticleField3DGaussianSplat"):
        raise ConfigError("formats=usdz needs usd-core 26.11 or later: pip install usd-core==26.11")
    return found


def describe_stage(stage: Any, scene: UsdScene) -> None:
    """Sets the axes, the times and the notes of a scene."""
    p = pxr()
    p.UsdGeom.SetStageUpAxis(stage, p.UsdGeom.Tokens.z)
    p.UsdGeom.SetStageMetersPerUnit(stage, 1)
    stage.SetDefaultPrim(p.UsdGeom.Xform.Define(stage, ROOT).GetPrim())
    stage.SetTimeCodesPerSecond(CODES)
    stage.SetFramesPerSecond(CODES)
    stage.SetStartTimeCode(0)
    stage.SetEndTimeCode(code(scene, scene.last))
    lines = scene.notes.lines()
    stage.GetRootLayer().comment = "\n".join(lines)
    origin = p.Gf.Vec3d(*scene.notes.origin)
    data = {"notes": p.Vt.StringArray(lines), "origin_m": origin, "first_second": float(scene.first)}
    stage.GetRootLayer().customLayerData = {"nurec_lite": data}


def code(scene: UsdScene, seconds: float) -> float:
    return (seconds - scene.first) * CODES


def add_gaussians(stage: Any, path: str, g: PlainGaussians) -> Any:
    """A prim with all values of the Gaussians, activations applied."""
    p = pxr()
    prim = p.UsdVol.ParticleField3DGaussianSplat.Define(stage, path)
    means, scales = _floats(g.means), _floats(g.log_scales.exp())
    prim.CreatePositionsAttr(p.Vt.Vec3fArray.FromNumpy(means))
    prim.CreateOrientationsAttr(p.Vt.QuatfArray.FromNumpy(_floats(quat_normalize(g.quats))[:, [1, 2, 3, 0]].copy()))
    prim.CreateScalesAttr(p.Vt.Vec3fArray.FromNumpy(scales))
    prim.CreateOpacitiesAttr(p.Vt.FloatArray.FromNumpy(_floats(torch.sigmoid(g.opacity_logits))))
    size = g.sh.shape[1]
    prim.CreateRadianceSphericalHarmonicsDegreeAttr(int(size**0.5) - 1)
    harmonics = prim.CreateRadianceSphericalHarmonicsCoefficientsAttr(
        p.Vt.Vec3fArray.FromNumpy(_floats(g.sh.flatten(0, 1)))
    )
    harmonics.SetMetadata("elementSize", size)
    if len(g):
        reach = 3 * scales.max(1, keepdims=True)
        prim.CreateExtentAttr(p.Vt.Vec3fArray.FromNumpy(np.stack([(means - reach).min(0), (means + reach).max(0)])))
    return prim


def add_actors(stage: Any, scene: Scene, content: UsdScene) -> None:
    """A prim for each actor, on its track and visible while it exists."""
    names: list[str] = []
    for node, gaussians in content.actors.items():
        k = node - 1
        names.append(unique_name(f"actor_{scene.tracks.ids[k]}", names))
        prim = add_gaussians(stage, f"{ROOT}/{names[-1]}", gaussians)
        _describe(prim.GetPrim(), scene, k)
        if content.animated:
            _animate(prim, scene, content, k)


def add_sky(stage: Any, scene: Scene, folder: Path) -> None:
    """A dome of light with the picture of the sky, which is written into the folder."""
    p = pxr()
    rows = (
        torch.sigmoid(scene.sky.detach()).nan_to_num().permute(1, 2, 0).mul(255).round().to(torch.uint8).cpu().numpy()
    )
    imageio.imwrite(folder / SKY, rows, plugin="pillow", extension=".png", is_batch=False)
    dome = p.UsdLux.DomeLight.Define(stage, f"{ROOT}/sky")
    dome.CreateTextureFileAttr(f"./{SKY}")
    dome.CreateTextureFormatAttr(p.UsdLux.Tokens.latlong)
    dome.AddOrientOp(p.UsdGeom.XformOp.PrecisionFloat).Set(p.Gf.Quatf(_SKY_TURN[0], p.Gf.Vec3f(*_SKY_TURN[1:])))


def add_mesh(stage: Any, name: str, mesh: Mesh) -> None:
    """Triangles for physics and shadows: renderers that draw the Gaussians leave guides out."""
    p = pxr()
    prim = p.UsdGeom.Mesh.Define(stage, f"{ROOT}/{name}")
    prim.CreatePointsAttr(p.Vt.Vec3fArray.FromNumpy(mesh.vertices.astype(np.float32)))
    prim.CreateFaceVertexCountsAttr(p.Vt.IntArray.FromNumpy(np.full(len(mesh.triangles), 3, np.int32)))
    prim.CreateFaceVertexIndicesAttr(p.Vt.IntArray.FromNumpy(mesh.triangles.astype(np.int32).ravel()))
    prim.CreateSubdivisionSchemeAttr(p.UsdGeom.Tokens.none)
    prim.CreateDoubleSidedAttr(True)
    prim.CreatePurposeAttr(p.UsdGeom.Tokens.guide)
    if len(mesh.vertices):
        ends = np.stack([mesh.vertices.min(0), mesh.vertices.max(0)]).astype(np.float32)
        prim.CreateExtentAttr(p.Vt.Vec3fArray.FromNumpy(ends))
    if mesh.colours is not None:
        colours = p.Vt.Vec3fArray.FromNumpy((mesh.colours / 255).astype(np.float32))
        prim.CreateDisplayColorPrimvar(p.UsdGeom.Tokens.vertex).Set(colours)


def unique_name(name: str, taken: Sequence[str]) -> str:
    """A name that USD takes for a prim."""
    valid = pxr().Tf.MakeValidIdentifier(name)
    return valid if valid not in taken else unique_name(f"{valid}_{len(taken)}", taken)


def set_pose(
    translate: Any, orient: Any, place: Sequence[float], quat: Sequence[float], at: float | None = None
) -> None:
    """Values of two transform operations: metres, wxyz, and the time code; None: at all times."""
    p = pxr()
    when = [] if at is None else [at]
    translate.Set(p.Gf.Vec3d(*place), *when)
    orient.Set(p.Gf.Quatd(quat[0], p.Gf.Vec3d(*quat[1:])), *when)


def pose_ops(prim: Any) -> tuple[Any, Any]:
    """The operations translate and orient, in double precision."""
    precise = pxr().UsdGeom.XformOp.PrecisionDouble
    return prim.AddTranslateOp(precise), prim.AddOrientOp(precise)


def is_placed(scene: Scene, k: int) -> bool:
    """Whether a track has a pose that is finite."""
    return len(_keyframes(scene, k)[0]) > 0


def _keyframes(scene: Scene, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Times [n], places [n, 3] and quaternions [n, 4] of a track that are finite."""
    tracks = scene.learned_tracks().to("cpu", torch.float64)
    rows = slice(tracks.offsets[k], tracks.offsets[k + 1])
    places, quats = tracks.translations[rows].detach(), quat_normalize(tracks.quaternions[rows].detach())
    known = torch.isfinite(torch.cat([places, quats], dim=1)).all(1)
    return tracks.times[rows][known], places[known], quats[known]


def _animate(prim: Any, scene: Scene, content: UsdScene, k: int) -> None:
    ops = pose_ops(prim)
    for time, place, quat in zip(*(values.tolist() for values in _keyframes(scene, k)), strict=True):
        set_pose(*ops, place, quat, code(content, time))
    first, last = (float(ends[k]) for ends in spans(scene.tracks))
    seen = prim.CreateVisibilityAttr()
    for time, shown in (
        (min(content.first, first) - 1, "invisible"),
        (first, "inherited"),
        (last + _AFTER, "invisible"),
    ):
        seen.Set(shown, code(content, time))


def _describe(prim: Any, scene: Scene, k: int) -> None:
    prim.SetDisplayName(scene.tracks.ids[k])
    prim.SetCustomDataByKey("id", scene.tracks.ids[k])
    prim.SetCustomDataByKey("class", scene.tracks.classes[k])
    size = pxr().Gf.Vec3d(*scene.tracks.sizes[k].double().tolist())
    prim.SetCustomDataByKey("length_width_height_m", size)


def _floats(values: torch.Tensor) -> np.ndarray:
    return np.ascontiguousarray(values.detach().float().cpu().numpy())
