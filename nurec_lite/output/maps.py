# SPDX-License-Identifier: Apache-2.0
"""Maps of cameras: colour, depth, normals, opacity and classes, each through the same stages as the colour.

A pixel blends Gaussians i with weights w_i = alpha_i T_i along its ray; t_i is where the ray meets Gaussian i.

    opacity   sum w_i
    depth     (sum w_i t_i / sum w_i) cos a, where a is the angle between the ray and the camera's forward axis;
              through an angular lens (`Camera.is_angular`) without the factor cos a
    normals   the unit vector along sum w_i n_i, where n_i is the shortest axis of Gaussian i, turned towards the camera
    classes   the largest of: 1 - sum w_i (sky), sum of w_i over the static scene, and over the actors of each class

Normals and classes are blended as colours of Gaussians, in passes of their own: one pass for the normals of a view, and one pass for three
classes. Depth, normals and classes are 0 where the opacity is below 0.5.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.evaluation.measure import completed, seen_by
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.geometry.harmonics import DEGREE_0
from nurec_lite.geometry.se3 import quat_normalize, quat_rotate, quat_to_matrix
from nurec_lite.geometry.tracks import interpolate
from nurec_lite.scene.scene import Scene
from nurec_lite.splat.render import CameraImage
from nurec_lite.splat.views import CameraView, camera_view
from nurec_lite.training.batches import render_views_in_batches
from nurec_lite.training.stages import Stages

OUTPUTS = ("colour", "depth", "normals", "opacity", "classes")
SKY, STATIC = "sky", "static"  # the first two classes
SOLID = 0.5  # least opacity of a pixel with a depth, a normal and a class
MOST_CLASSES = 256
_BLACK = -100.0  # logit of a sky without light


@dataclass(frozen=True)
class CameraMaps:
    """One image on the scene's device; None is a map that was not asked for."""

    colour: Tensor  # [H, W, 3] 0 to 1
    depth: Tensor  # [H, W] metres along the camera's forward axis; through an angular lens along the ray
    opacity: Tensor  # [H, W] 0 to 1
    normals: Tensor | None = None  # [H, W, 3] unit, in the camera's axes in the middle of the exposure
    classes: Tensor | None = None  # [H, W] uint8, index into `class_names`


def class_names(scene: Scene) -> tuple[str, ...]:
    """Names of the classes by their numbers: sky, the static scene, and the classes of the tracks in alphabetical order."""
    return (SKY, STATIC, *sorted(set(scene.tracks.classes)))


@torch.no_grad()
def maps_of(
    stages: Stages,
    scene: Scene,
    capture: Capture,
    frames: Iterable[ImageFrame],
    outputs: Sequence[str],  # of OUTPUTS
) -> Iterator[CameraMaps]:
    """The maps of each frame, in their order."""
    if "classes" in outputs and len(class_names(scene)) > MOST_CLASSES:
        raise ConfigError(
            f"outputs asks for classes, but the tracks have {len(class_names(scene)) - 2}, and there is room for {MOST_CLASSES - 2}; "
            "leave classes out"
        )
    scene, coming = completed(scene, capture), iter(frames)
    by_camera = seen_by(scene, capture)
    at_once = 1 if stages.plan is None else stages.plan.max_views
    while some := list(islice(coming, at_once)):
        views = [camera_view(capture, frame, scene.sky.device) for frame in some]
        images = _rendered(stages, scene, views)
        classes = _classes(stages, scene, views, images) if "classes" in outputs else [None] * len(some)
        for frame, view, image, labels in zip(some, views, images, classes, strict=True):
            normals = _normals(stages, scene, view, image) if "normals" in outputs else None
            colour = by_camera(frame, image.colour)
            yield CameraMaps(colour, _depth(view, image), image.opacity, normals, labels)


def _rendered(stages: Stages, scene: Scene, views: Sequence[CameraView]) -> list[CameraImage]:
    return [image for *_, image in render_views_in_batches(stages, scene, ((None, view) for view in views))]


def _depth(view: CameraView, image: CameraImage) -> Tensor:  # [H, W] metres
    """Depth along the camera's axis; through an angular lens along the ray."""
    depth = image.distance / image.opacity.clamp(min=SOLID)
    if not view.camera.is_angular:
        depth = depth * pixel_directions(view.camera, image.distance.dtype, image.distance.device)[..., 2]
    return torch.where(image.opacity >= SOLID, depth, torch.zeros_like(depth))


# ---- other values in place of colours


def _painted(
    scene: Scene,
    values: Tensor,  # [N, 3] 0 to 1
) -> Scene:
    """The scene with these values as colours of its Gaussians, and a black sky."""
    g = scene.gaussians
    sh0 = ((values - 0.5) / DEGREE_0).to(g.sh0.dtype)[:, None]
    painted = replace(g, sh0=sh0.contiguous(), sh_rest=torch.zeros_like(g.sh_rest))
    return replace(scene, gaussians=painted, sky=torch.full_like(scene.sky, _BLACK))


def _classes(
    stages: Stages, scene: Scene, views: Sequence[CameraView], images: Sequence[CameraImage]
) -> list[Tensor | None]:  # [H, W] uint8 each
    weights = [[image.opacity.new_zeros(image.opacity.shape) for _ in class_names(scene)[2:]] for image in images]
    for first in range(0, len(class_names(scene)) - 2, 3):
        for own, image in zip(weights, _rendered(stages, _labelled(scene, first), views), strict=True):
            own[first : first + 3] = image.colour.unbind(-1)[: len(own) - first]
    found: list[Tensor | None] = []
    for own, image in zip(weights, images, strict=True):
        static = image.opacity - sum(own)
        likeliest = torch.stack([1 - image.opacity, static, *own]).argmax(0).to(torch.uint8)
        found.append(likeliest * (image.opacity >= SOLID))
    return found


def _labelled(scene: Scene, first: int) -> Scene:
    """The scene in colours that name classes: three classes of tracks, from `first` on, are the three channels, 1 where an actor has it."""
    names = class_names(scene)[2:]
    number = torch.tensor([-1, *(names.index(name) for name in scene.tracks.classes)])  # of each node
    one_hot = (number[:, None] == first + torch.arange(3)).float().to(scene.gaussians.node.device)
    return _painted(scene, one_hot.index_select(0, scene.gaussians.node))


def _normals(stages: Stages, scene: Scene, view: CameraView, image: CameraImage) -> Tensor:  # [H, W, 3]
    normals = facing_normals(scene, view)
    (blended,) = _rendered(stages, _painted(scene, 0.5 + 0.5 * normals), [view])
    total = 2 * blended.colour - image.opacity[..., None]
    axes = quat_to_matrix(view.pose(total.new_tensor(0.5))[0])  # world from camera
    solid = image.opacity >= SOLID
    return torch.where(solid[..., None], F.normalize(total, dim=-1) @ axes, torch.zeros_like(total))


def facing_normals(scene: Scene, view: CameraView) -> Tensor:
    """[N, 3] the shortest axis of each Gaussian in the world, turned towards the camera, with actors where they are then."""
    g, poses = scene.gaussians, interpolate(scene.learned_tracks(), view.moment()[None])
    identity = g.quats.new_tensor([[1.0, 0, 0, 0]])
    frames = torch.cat([identity, poses.quaternions[0]]).index_select(0, g.node)
    places = torch.cat([identity[:, 1:], poses.translations[0]]).index_select(0, g.node)
    shortest = F.one_hot(g.log_scales.argmin(1), 3).to(g.quats.dtype)
    normals = quat_rotate(frames, quat_rotate(quat_normalize(g.quats), shortest))
    towards = view.eye() - (quat_rotate(frames, g.means) + places)
    return torch.where((normals * towards).sum(1, keepdim=True) < 0, -normals, normals)
