# SPDX-License-Identifier: Apache-2.0
"""Depth, normals, opacity and classes of walls and boxes whose values are known."""

import math
from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_capture, tiny_scene
from torch import Tensor

from nurec_lite.backends import base_stages
from nurec_lite.base.errors import ConfigError
from nurec_lite.capture.trajectory import frame_at, trajectory_of
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.camera import pixel_directions
from nurec_lite.geometry.se3 import rotvec_to_quat
from nurec_lite.geometry.tracks import Tracks
from nurec_lite.output.maps import OUTPUTS, CameraMaps, class_names, maps_of
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene
from nurec_lite.training.baseline import reference_stages

SPACING, TURN = 0.25, math.radians(30)


def frame() -> ImageFrame:
    """camera_0 without its own motion."""
    capture = tiny_capture()
    found = frame_at([f for f in capture.images if f.sensor == "camera_0"], trajectory_of(capture), 0.5)
    return replace(found, T_world_rig_start=torch.eye(4).double(), T_world_rig_end=torch.eye(4).double())


def wall(distance: float, node: int = 0, top: float = 10.0) -> Gaussians:
    """Opaque disks across the forward axis, turned by TURN about the upward axis, whose shortest axis is x."""
    y, z = torch.meshgrid(torch.arange(-10, 10, SPACING), torch.arange(-8, top, SPACING), indexing="ij")
    n = y.numel()
    across = y.flatten()
    means = torch.stack([distance - math.sin(TURN) * across, math.cos(TURN) * across, z.flatten() + 1.5], dim=1)
    turned = rotvec_to_quat(torch.tensor([[0, 0, TURN]])).float().repeat(n, 1)
    return Gaussians(
        means, turned, torch.tensor([[0.002, SPACING, SPACING]]).log().repeat(n, 1), torch.full((n,), 8.0),
        torch.zeros(n, 1, 3), torch.zeros(n, 3, 3), torch.zeros(n, 2), torch.full((n,), node),
    )  # fmt: skip


def of_nodes(*parts: Gaussians) -> Gaussians:
    """All parts in one."""
    return Gaussians(*(torch.cat([getattr(part, f) for part in parts]) for f in Gaussians.__dataclass_fields__))


def seen(gaussians: Gaussians, scene: Scene | None = None) -> CameraMaps:
    scene = replace(scene or tiny_scene(), gaussians=gaussians)
    (maps,) = maps_of(reference_stages(), scene, tiny_capture(), [frame()], OUTPUTS)
    return maps


@pytest.fixture(scope="module")
def of_a_wall() -> CameraMaps:
    return seen(wall(8.0))


def test_depth_is_along_the_forward_axis(of_a_wall: CameraMaps) -> None:
    camera = tiny_capture().camera("camera_0")
    directions = pixel_directions(camera, torch.float64) @ camera.T_rig_cam[:3, :3].T
    normal = torch.tensor([math.cos(TURN), math.sin(TURN), 0.0], dtype=torch.float64)
    place = torch.tensor([8.0, 0, 0], dtype=torch.float64) - camera.T_rig_cam[:3, 3]
    ranges = (place @ normal) / (directions @ normal)
    expected = ranges * pixel_directions(camera, torch.float64)[..., 2]
    torch.testing.assert_close(of_a_wall.depth[6:18, 8:32].double(), expected[6:18, 8:32], rtol=2e-3, atol=0)
    assert float(of_a_wall.opacity[6:18, 8:32].min()) > 0.99


def test_normals_are_the_wall_s_in_the_camera_s_axes(of_a_wall: CameraMaps) -> None:
    assert of_a_wall.normals is not None
    expected = torch.tensor([math.sin(TURN), 0.0, -math.cos(TURN)])  # right, down, forward; towards the camera
    torch.testing.assert_close(of_a_wall.normals[6:18, 8:32], expected.expand(12, 24, 3), rtol=0, atol=1e-3)


@pytest.mark.parametrize("name", ["depth", "normals", "opacity", "classes"])
def test_compiled_kernels_give_the_same(of_a_wall: CameraMaps, name: str) -> None:
    """Gaussians of actors and of the background, as the kernels take them apart."""
    scene = replace(tiny_scene(), gaussians=of_nodes(wall(12.0), wall(8.0, node=1, top=0.0)))
    stages = base_stages("native", torch.device("cpu"))
    ours, plain = (next(maps_of(s, scene, tiny_capture(), [frame()], OUTPUTS)) for s in (stages, reference_stages()))
    off = (getattr(ours, name).double() - getattr(plain, name).double()).abs()
    assert float((off > 2e-3).double().mean()) < 0.01  # pixels at the edge of 0.5, and of two classes


def test_nothing_where_there_is_sky_alone() -> None:
    maps = seen(wall(8.0, top=-6.0))  # below the camera
    sky = maps.opacity < 0.5
    assert bool(sky[:8].all()) and maps.normals is not None and maps.classes is not None
    assert float(maps.depth[sky].abs().max()) == 0 and float(maps.normals[sky].abs().max()) == 0
    assert int(maps.classes[sky].max()) == 0


def test_classes_are_those_of_the_tracks() -> None:
    """A wall that is an actor hides the static one behind it."""
    scene = tiny_scene()
    node = 1 + next(k for k, name in enumerate(scene.tracks.classes) if name == "Van")
    standing = replace(
        scene,
        track_translations=torch.zeros_like(scene.track_translations),
        track_quaternions=torch.tensor([[1.0, 0, 0, 0]]).repeat(len(scene.track_quaternions), 1),
    )
    static, actor = wall(12.0), wall(8.0, node, top=0.0)
    maps, names = seen(of_nodes(static, actor), standing), class_names(scene)
    assert names[:2] == ("sky", "static") and maps.classes is not None
    rows: Tensor = maps.classes[:, 16:24]
    assert {names[k] for k in rows[-6:].unique().tolist()} == {"Van"}
    assert {names[k] for k in rows[:6].unique().tolist()} == {"static"}


def test_normals_turn_with_their_actor() -> None:
    scene = tiny_scene()
    turned = replace(
        scene,
        track_translations=torch.zeros_like(scene.track_translations),
        track_quaternions=rotvec_to_quat(torch.tensor([[0, 0, -TURN]])).float().repeat(len(scene.track_quaternions), 1),
    )
    maps = seen(wall(8.0, node=1), turned)
    assert maps.normals is not None
    expected = torch.tensor([0.0, 0.0, -1.0])
    torch.testing.assert_close(maps.normals[10:14, 14:26], expected.expand(4, 12, 3), rtol=0, atol=1e-3)


def test_a_scene_without_tracks_has_two_classes() -> None:
    scene, none = tiny_scene(), torch.zeros(0)
    empty = replace(
        scene, tracks=Tracks.empty(), track_translations=none.view(0, 3), track_quaternions=none.view(0, 4)
    )  # fmt: skip
    maps = seen(wall(8.0, top=0.0), empty)
    assert (
        class_names(empty) == ("sky", "static")
        and maps.classes is not None
        and maps.classes.unique().tolist() == [0, 1]
    )


def test_more_classes_than_a_byte_holds_are_refused() -> None:
    scene = tiny_scene()
    many = replace(scene, tracks=replace(scene.tracks, classes=tuple(f"kind {k}" for k in range(300))))
    with pytest.raises(ConfigError, match="the tracks have 300, and there is room for 254"):
        seen(wall(8.0), many)
