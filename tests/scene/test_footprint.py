# SPDX-License-Identifier: Apache-2.0
"""Numbers of pixels that Gaussians cover, counted by hand for the tiny capture's cameras."""

from dataclasses import replace

import pytest
import torch
from tiny_capture import tiny_state

from nurec_lite.scene.footprint import footprints
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.training.state import TrainState


@pytest.fixture
def state() -> TrainState:
    return tiny_state()


def put(state: TrainState, local: list[list[float]], scales: list[float], node: int = 0) -> None:
    """Gaussians at places in the frame of the first image's camera (node 0), or in an actor's own."""
    capture, n = state.plan.capture, len(local)
    frame = capture.images[0]
    T = (frame.T_world_rig_start @ capture.camera(frame.sensor).T_rig_cam).float()
    means = torch.tensor(local)
    if node == 0:
        means = means @ T[:3, :3].T + T[:3, 3]
    g = state.scene.gaussians
    state.scene.gaussians = Gaussians(
        means=means,
        quats=torch.tensor([[1.0, 0, 0, 0]]).expand(n, 4),
        log_scales=torch.tensor([scales]).log().expand(n, 3),
        **{
            name: getattr(g, name)[:1].expand(n, *getattr(g, name).shape[1:])
            for name in ("sh0", "sh_rest", "lidar_logits")
        },
        opacity_logits=torch.zeros(n),
        node=torch.full((n,), node),
    )


def test_two_largest_scales_in_pixels_at_the_depth(state: TrainState) -> None:
    put(state, [[0.0, 0.0, 5.0], [0.0, 0.0, 10.0]], [0.1, 0.4, 0.2])
    fx = state.plan.capture.camera(state.plan.capture.images[0].sensor).fx
    expected = torch.tensor([0.4 * 0.2 * (fx / 5) ** 2, 0.4 * 0.2 * (fx / 10) ** 2])
    assert torch.allclose(footprints(state.scene, state.plan.capture, [0]), expected, rtol=1e-4)


def test_the_nearest_image_counts_whatever_the_order(state: TrainState) -> None:
    put(state, [[0.0, 0.0, 12.0]], [0.1, 0.1, 0.1])
    capture, all_images = state.plan.capture, range(len(state.plan.capture.images))
    each = [float(footprints(state.scene, capture, [i])[0]) for i in all_images]
    assert len(set(each)) > 1
    assert float(footprints(state.scene, capture, list(all_images))[0]) == max(each)


def test_behind_beside_and_too_near_count_as_unseen(state: TrainState) -> None:
    put(state, [[0.0, 0.0, -5.0], [100.0, 0.0, 5.0], [0.0, -100.0, 5.0], [0.0, 0.0, 0.3]], [0.1, 0.1, 0.1])
    assert footprints(state.scene, state.plan.capture, [0]).tolist() == [0, 0, 0, 0]


def test_what_lies_under_a_mask_does_not_count(state: TrainState) -> None:
    """In the image that has the mask; another image of the same Gaussian counts. Beyond a masked border nothing counts either."""
    capture = state.plan.capture
    camera = capture.camera(capture.images[0].sensor)
    mask = torch.zeros(camera.height, camera.width, dtype=torch.bool)
    mask[-2:] = True
    masked = replace(capture, cameras=tuple(replace(c, mask=mask if c == camera else None) for c in capture.cameras))
    places = [[0.0, (row - camera.cy) * 5 / camera.fy, 5.0] for row in (camera.height - n for n in (3.5, 1.5, -4.0))]
    put(state, places, [0.1, 0.1, 0.1])
    before, after = (footprints(state.scene, one, [0]) for one in (capture, masked))
    assert (before > 0).all() and after[0] == before[0] and not after[1:].any()
    other = next(k for k, frame in enumerate(capture.images) if frame.sensor != camera.name)
    both, alone = (footprints(state.scene, masked, images) for images in ([0, other], [other]))
    assert torch.equal(both[1:], alone[1:])


def test_an_actor_moves_with_its_track_and_counts_only_while_it_exists(state: TrainState) -> None:
    capture, tracks = state.plan.capture, state.scene.tracks
    frame = capture.images[0]
    camera, time = capture.camera(frame.sensor), 0.5 * (frame.time_start + frame.time_end)
    T = (frame.T_world_rig_start @ camera.T_rig_cam).float()
    keys = slice(tracks.offsets[0], tracks.offsets[1])
    ahead = T[:3, :3] @ torch.tensor([0.0, 0.0, 8.0]) + T[:3, 3]
    state.scene.track_translations = state.scene.track_translations.clone()
    state.scene.track_translations[keys] = ahead  # the object stands 8 m ahead of the camera
    put(state, [[0.0, 0.0, 0.0]], [0.2, 0.2, 0.2], node=1)
    there = footprints(state.scene, capture, [0])
    gone = replace(tracks, times=tracks.times.clone(), margin=0.0)
    gone.times[keys] += time + 100 - gone.times[keys][0]
    state.scene.tracks = gone
    assert torch.allclose(there, torch.tensor([(0.2 * camera.fx / 8) ** 2]), rtol=1e-3)
    assert float(footprints(state.scene, capture, [0])) == 0


def test_no_gaussians(state: TrainState) -> None:
    put(state, [[0.0, 0.0, 5.0]], [0.1, 0.1, 0.1])
    g = state.scene.gaussians
    state.scene.gaussians = Gaussians(**{name: value[:0] for name, value in vars(g).items()})
    assert footprints(state.scene, state.plan.capture, [0, 1]).shape == (0,)
