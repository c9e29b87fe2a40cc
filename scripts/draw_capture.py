# SPDX-License-Identifier: Apache-2.0
"""Two pictures that show whether a capture is consistent: lidar points over an image, and the map of all sweeps from above.

    python scripts/draw_capture.py data=kitti_raw data.root=FOLDER [data.poses.file=FILE] --frame 20 --out DIR
    python scripts/draw_capture.py data=pack data.root=FILE --frame 20 --out DIR

overlay.png: every point goes to the world at its own time and from there into the image at the image's time, coloured by
range; a box is drawn where its track is at that time. map.png: all points coloured by height, the rig's path and all keyframes.
"""

from argparse import Namespace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor

from nurec_lite.base.program import Parser
from nurec_lite.capture.deskew import project_world_points, world_points
from nurec_lite.capture.origin import in_users_world
from nurec_lite.capture.types import Capture, CaptureError, ImageFrame, SweepFrame
from nurec_lite.cli.command import composed, mended
from nurec_lite.geometry.camera import Camera
from nurec_lite.geometry.se3 import pose_matrix, transform
from nurec_lite.geometry.tracks import Tracks, interpolate
from nurec_lite.readers import open_capture

EDGES = [
    (a, b) for a in range(8) for b in range(a + 1, 8) if (a ^ b) in (1, 2, 4)
]  # of a box's corners, numbered by bits
YELLOW, RED = (255, 220, 0), (255, 60, 60)


def rainbow(
    value: Tensor,  # [n] 0 to 1
) -> np.ndarray:  # [n, 3] uint8: blue, cyan, green, yellow, red
    stops = np.array([[40, 60, 200], [0, 190, 230], [60, 210, 80], [250, 220, 40], [230, 40, 30]], dtype=float)
    at = value.clamp(0, 1).numpy() * (len(stops) - 1)
    return np.stack([np.interp(at, range(len(stops)), stops[:, k]) for k in range(3)], axis=-1).astype(np.uint8)


def returned_points(capture: Capture, frame: SweepFrame) -> tuple[Tensor, Tensor]:  # world [n, 3], range [n]
    sweep = frame.load()
    sweep = sweep.select(sweep.returned)
    return world_points(frame, sweep, capture.lidar(frame.sensor)), sweep.ranges


def box_corners(
    sizes: Tensor,  # [n, 3] length, width, height
    T_world_object: Tensor,  # [n, 4, 4]
) -> Tensor:  # [n, 8, 3]
    signs = torch.tensor([[(i >> k & 1) - 0.5 for k in range(3)] for i in range(8)], dtype=torch.float64)
    return transform(T_world_object, signs * sizes[:, None])


def boxes_at(tracks: Tracks, time: float) -> Tensor:  # corners [n, 8, 3] of the tracks that exist at that time
    poses = interpolate(tracks, torch.tensor([time], dtype=torch.float64))
    valid = poses.valid[0]
    return box_corners(tracks.sizes[valid], pose_matrix(poses.quaternions[0, valid], poses.translations[0, valid]))


def draw_box(draw: ImageDraw.ImageDraw, camera: Camera, frame: ImageFrame, corners: Tensor) -> None:
    """Edges in short pieces, so that what lies behind the camera is left out."""
    weight = torch.linspace(0, 1, 33, dtype=torch.float64)[:, None]
    for a, b in EDGES:
        pixels, depth = project_world_points(camera, frame, torch.lerp(corners[a], corners[b], weight))
        for i in range(len(weight) - 1):
            if depth[i] > 0.5 and depth[i + 1] > 0.5:
                draw.line([*pixels[i].tolist(), *pixels[i + 1].tolist()], fill=YELLOW, width=1)


def draw_overlay(capture: Capture, frame: ImageFrame, scale: int = 1) -> Image.Image:
    camera = capture.camera(frame.sensor)
    sweep = min(capture.sweeps, key=lambda s: abs(s.time_mid - frame.time_mid))
    points, ranges = returned_points(capture, sweep)
    pixels, depth = project_world_points(camera, frame, points)
    size = torch.tensor([camera.width, camera.height])
    seen = (depth > 0.5) & (pixels >= 0).all(1) & (pixels < size).all(1)
    order = torch.argsort(depth[seen], descending=True)  # near points over far ones
    place = pixels[seen][order].long()
    picture = frame.load().numpy()
    picture[place[:, 1], place[:, 0]] = rainbow(ranges[seen][order] / 60)
    picture = np.repeat(np.repeat(picture, scale, axis=0), scale, axis=1)
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    scaled = enlarge(camera, scale)
    for corners in boxes_at(capture.tracks, frame.time_mid):
        draw_box(draw, scaled, frame, corners)
    return image


def enlarge(camera: Camera, scale: int) -> Camera:
    values = {k: getattr(camera, k) * scale for k in ("width", "height", "fx", "fy", "cx", "cy")}
    return Camera(
        camera.name, **values, T_rig_cam=camera.T_rig_cam, distortion=camera.distortion, shutter=camera.shutter
    )


def draw_map(capture: Capture, pixel: float) -> Image.Image:
    """World x to the right, y up; the highest point of a pixel is seen."""
    points = torch.cat([returned_points(capture, frame)[0] for frame in capture.sweeps])
    path = torch.stack([frame.T_world_rig_start[:3, 3] for frame in capture.sweeps])
    low, high = path.amin(0)[:2] - 60, path.amax(0)[:2] + 60
    width, height = (((high - low) / pixel).long() + 1).tolist()

    def place(at: Tensor) -> Tensor:  # world [..., 3] -> pixels [..., 2]
        return torch.stack([(at[..., 0] - low[0]) / pixel, (high[1] - at[..., 1]) / pixel], dim=-1)

    inside = ((points[:, :2] > low) & (points[:, :2] < high)).all(1)
    points = points[inside][torch.argsort(points[inside, 2])]
    at = place(points).long()
    picture = np.zeros((height, width, 3), np.uint8)
    ground = path[:, 2].mean() - 1.7
    picture[at[:, 1], at[:, 0]] = rainbow((points[:, 2] - ground + 0.5) / 6)
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image)
    draw.line([tuple(p) for p in place(path).tolist()], fill=RED, width=2)
    for corners in all_boxes(capture.tracks):
        ring = place(corners[[0, 1, 3, 2, 0]]).tolist()
        draw.line([tuple(p) for p in ring], fill=YELLOW, width=1)
    return image


def all_boxes(tracks: Tracks) -> Tensor:  # corners [M, 8, 3] at all keyframes
    counts = torch.diff(torch.tensor(tracks.offsets))
    sizes = torch.repeat_interleave(tracks.sizes, counts, dim=0)
    return box_corners(sizes, pose_matrix(tracks.quaternions, tracks.translations))


def draw(args: Namespace) -> None:
    capture = in_users_world(open_capture(composed("train", args.overrides).data))
    name = args.camera or capture.cameras[0].name
    frames = [f for f in capture.images if f.sensor == name and f.index == args.frame]
    if not frames:
        raise CaptureError(f"capture {capture.name} has no image {args.frame} of camera {name}; choose another frame")
    args.out.mkdir(parents=True, exist_ok=True)
    draw_overlay(capture, frames[0], args.scale).save(args.out / "overlay.png")
    draw_map(capture, args.pixel).save(args.out / "map.png")


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--camera", help="name of the camera (default: the first)")
    parser.add_argument("--frame", type=int, default=0, help="index of the image (%(default)s)")
    parser.add_argument("--scale", type=int, default=1, help="enlarges the overlay (%(default)s times)")
    parser.add_argument("--pixel", type=float, default=0.1, help="metres a pixel of the map (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="of nurec_lite.train (the bundled street)")
    with mended("train"):
        draw(parser.parse_intermixed_args())


if __name__ == "__main__":
    main()
