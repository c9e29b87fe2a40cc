# SPDX-License-Identifier: Apache-2.0
"""Colours of points: images of one moment are looked at together, with the result that each gives alone."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nurec_lite.capture.deskew import middle_poses, rig_motion
from nurec_lite.capture.types import ImageFrame
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import invert, pose_matrix, rotvec_to_quat
from nurec_lite.scene.pictures import Picture, colours_in

POINTS = 400


def pose(turn: list[float], place: list[float]) -> Tensor:
    return pose_matrix(
        rotvec_to_quat(torch.tensor(turn, dtype=torch.float64)), torch.tensor(place, dtype=torch.float64)
    )


def picture(k: int, camera: Camera) -> Picture:
    generator = torch.Generator().manual_seed(k)
    image = torch.randint(256, (camera.height, camera.width, 3), dtype=torch.uint8, generator=generator)
    start, end = pose([0, 0.3 * k, 0], [0.1 * k, 0, 0]), pose([0.02, 0.3 * k + 0.05, 0], [0.1 * k + 0.3, 0, 0.2])
    frame = ImageFrame(camera.name, k, 0.0, 0.05, start, end, lambda: image)
    return Picture(camera, frame, image, rig_motion([frame]), invert(middle_poses([frame])[0] @ camera.T_rig_cam))


def cameras(shutter: str) -> list[Camera]:
    plain = Camera("a", 64, 48, 50.0, 51.0, 31.0, 25.0, pose([0, 0.1, 0], [0.2, 0, 0]), shutter=shutter)
    mask = torch.zeros(48, 64, dtype=torch.bool)
    mask[30:] = True
    bent = replace(plain, name="d", fx=40.0, distortion=(-0.1, 0.02, 1e-3, -1e-3, 0.0))
    fish = replace(plain, name="f", lens="fisheye", distortion=(0.01, 0.0, 0.0, 0.0))
    others = [replace(plain, name="b", fx=60.0, cy=20.0), replace(plain, name="c", mask=mask)]
    return [plain, *others, bent, replace(plain, name="e", width=40), fish]


@pytest.mark.parametrize("shutter", ["global", "top_to_bottom", "right_to_left"])
def test_images_together_give_the_mean_of_each_alone(shutter: str) -> None:
    pictures = [picture(k, camera) for k, camera in enumerate([*cameras(shutter), *cameras(shutter)[:2]])]
    generator = torch.Generator().manual_seed(9)
    world = 12 * torch.rand(POINTS, 3, dtype=torch.float64, generator=generator) + torch.tensor([-6, -6, 1.0])
    colour, seen = colours_in(pictures, world)
    alone = [colours_in([one], world) for one in pictures]
    counts = torch.stack([own for _, own in alone]).sum(0)
    sums = torch.stack([own[:, None] * part for part, own in alone]).sum(0)
    assert int(counts.max()) > 1 and int((counts == 0).sum()) > 0
    assert torch.equal(seen, counts > 0)
    torch.testing.assert_close(colour[seen], sums[seen] / counts[seen, None])
    assert bool((colour[~seen] == 0.5).all())


def test_none_is_seen_without_images_or_points() -> None:
    colour, seen = colours_in([], torch.zeros(3, 3, dtype=torch.float64))
    assert not seen.any() and colour.tolist() == [[0.5] * 3] * 3
    for shutter in ("global", "top_to_bottom"):
        colour, seen = colours_in([picture(0, cameras(shutter)[0])], torch.zeros(0, 3, dtype=torch.float64))
        assert colour.shape == (0, 3) and seen.shape == (0,)


def test_a_mask_hides_its_own_camera_s_pixels() -> None:
    plain, masked = cameras("global")[0], cameras("global")[2]
    T = invert(picture(0, plain).T_cam_world)
    below = (T @ torch.tensor([0, 1.0, 5, 1], dtype=torch.float64))[None, :3]
    still = [picture(0, camera) for camera in (plain, masked)]
    assert [bool(colours_in([p], below)[1]) for p in still] == [True, False]
    assert torch.equal(colours_in(still, below)[0], colours_in(still[:1], below)[0])
