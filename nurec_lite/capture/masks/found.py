# SPDX-License-Identifier: Apache-2.0
"""Finds the own vehicle in the images of a camera: pixels at the lower edge that never change while the vehicle drives.

Road may change little, too. So the search is for an outline from the left edge of the image to the right one. Little changes below it. On
it the image has an edge that stays, or begins to change. The pixels below it must change far less than the rest of the image. A lane line
along the street is such an edge, and asphalt lies below it. So a vehicle needs evidence: edges below the outline that stay, or an outline
that is arched and level. And nothing may pass below the outline, as dashes of the road do.

Letters: F images, h x w pixels.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.base.pool import in_threads
from nurec_lite.capture.images import as_image, grey
from nurec_lite.capture.types import Capture, ImageFrame
from nurec_lite.geometry.camera import Camera

log = logging.getLogger("nurec_lite")
FEWEST, MOST = 8, 12  # images that are compared
TRAVEL = 4.0  # metres from the first one to the last one at least
APART = 0.2  # metres between two that are compared at least
SMALLEST, WIDTH = 96, 240  # pixels of width: of images that show enough, and of larger ones after reduction
AREA = (0.01, 0.4)  # of the image, that a vehicle covers
# Least share of the width that a mask covers, and its largest change then, relative to the large changes in the image.
# A bonnet is as wide as the image; a narrower mask is its corner, or a patch of road.
CALM = ((0.9, 0.15), (2 / 3, 0.1), (0.0, 0.07))
PASSING = (0.97, 0.35)  # this quantile of the change below the outline is at most so large: more passes on a road
STAYING, SURE, DEEP = 0.1, 0.7, 4  # share of the pixels this many rows below the outline whose edge stays so well
ARCHED, LEVEL = 0.007, 0.25  # rise of an arched outline, of the image's height, and its largest tilt, of that rise
_STILL, _ROUNDS = 0.1, 3  # exposures come from this share of the pixels, those of least change, in so many rounds
_WHITE, _DARK = 0.97, 0.005  # of full scale: brighter pixels are clipped; this is added to all, for their logarithm
_STEEP, _JUMP = 0.15, 3.0  # cost of an outline that rises by a row, and at most
_NEAR = 5  # rows above and below an outline that are compared
_FAINT = 0.015  # of full scale: a fainter edge is none


def while_driving(
    frames: Sequence[ImageFrame],  # of a camera, in time order
) -> list[ImageFrame]:  # MOST at most, evenly along the way; none where there are too few
    places = torch.stack([frame.T_world_rig_start[:3, 3] for frame in frames]) if frames else torch.zeros(0, 3)
    way = F.pad(places.diff(dim=0).norm(dim=1).cumsum(0), (1, 0)) if len(places) else places[:, 0]
    if len(way) == 0 or float(way[-1]) < TRAVEL:
        return []
    chosen = list[int]()
    for wanted in torch.linspace(0, float(way[-1]), MOST, dtype=way.dtype):
        nearest = int((way - wanted).abs().argmin())
        if not chosen or float(way[nearest] - way[chosen[-1]]) > APART:
            chosen.append(nearest)
    return [frames[i] for i in chosen] if len(chosen) >= FEWEST else []


def small(
    image: Tensor,  # [H, W, 3] uint8
) -> Tensor:  # [h, w] 0 to 1
    """The image in grey, reduced to WIDTH columns at most."""
    shown = grey(image) / 255
    height, width = shown.shape
    if width <= WIDTH:
        return shown
    return F.adaptive_avg_pool2d(shown[None], (max(1, round(height * WIDTH / width)), WIDTH))[0]


def own_vehicle(
    images: Sequence[Tensor],  # [h, w] each, of a camera while it drives, as `small` gives them
) -> Tensor | None:  # [h, w] bool; None: nothing is found
    if len(images) < FEWEST or images[0].shape[1] < SMALLEST:
        return None
    return _found(torch.stack(list(images)))


def _found(images: Tensor) -> Tensor | None:
    change, edges = _maps(_of_one_exposure(images))
    outline = _outline(_scores(change, edges))
    mask = torch.from_numpy(np.arange(len(change))[:, None] >= outline)
    area, wide = float(mask.double().mean()), float((outline < len(change)).mean())
    if not AREA[0] <= area <= AREA[1]:
        return None
    inside, most = change[mask], next(most for least, most in CALM if wide >= least)
    calm = float(inside.mean()) <= most and float(inside.quantile(PASSING[0])) <= PASSING[1]
    return (
        mask
        if calm and (_stays_below(outline, edges) or (wide >= CALM[0][0] and _is_arched(outline, len(change))))
        else None
    )


def _stays_below(
    outline: np.ndarray,  # [w] rows
    edges: Tensor,  # [h, w]
) -> bool:
    """Whether edges stay inside the mask, as those of a vehicle's parts do and texture of a road does not."""
    deep = edges[torch.from_numpy(np.arange(len(edges))[:, None] >= outline + DEEP)]
    return len(deep) > 0 and float((deep > SURE).double().mean()) >= STAYING


def _is_arched(
    outline: np.ndarray,  # [w] rows
    height: int,  # of the image; rows from it on are no outline
) -> bool:
    """Whether the outline is highest in the middle, and level. Lines of a road are straight, tilted, or bent down by a wide lens."""
    seen = outline[outline < height]
    rise, tilt, _ = np.polyfit(np.linspace(-1, 1, len(seen)), seen.astype(np.float64), 2)  # rows count downwards
    return bool(rise >= ARCHED * height and abs(tilt) <= LEVEL * rise)


def without_own_vehicle(capture: Capture) -> Capture:
    """Returns the capture with masks of the found vehicle, for cameras that have none."""
    cameras = [camera if camera.mask is not None else _with_found(capture, camera) for camera in capture.cameras]
    return replace(capture, cameras=tuple(cameras))


def _with_found(capture: Capture, camera: Camera) -> Camera:
    frames = while_driving([frame for frame in capture.images if frame.sensor == camera.name])
    mask = own_vehicle(list(in_threads(lambda frame: small(as_image(frame.load())), frames)))
    if mask is None:
        log.info("data.masks=auto finds nothing that never changes in the images of %s", camera.name)
        return camera
    share = 100 * float(mask.double().mean())
    log.info("data.masks=auto leaves out %.1f %% of the images of %s, which never change", share, camera.name)
    return replace(camera, mask=_in_image(mask, camera.height, camera.width))


def _in_image(
    mask: Tensor,  # [h, w] bool
    height: int,
    width: int,
) -> Tensor:  # [height, width] bool, a row of the small image larger above
    grown = mask | F.pad(mask[1:], (0, 0, 0, 1))
    return F.interpolate(grown[None, None].float(), (height, width), mode="nearest")[0, 0] > 0


def _of_one_exposure(
    images: Tensor,  # [F, h, w]
) -> Tensor:
    """The images without changes of exposure, by the pixels that change least: the vehicle's own, where it is seen."""
    usable = (images < _WHITE).all(0)
    if not usable.any():
        return images
    logs = (images + _DARK).log()[:, usable]  # [F, n]
    gains = (logs - logs.mean(0)).median(1).values
    for _ in range(_ROUNDS):
        even = logs - gains[:, None]
        change = (even - even.median(0).values).abs().mean(0)
        still = even[:, change <= torch.quantile(change, _STILL)]
        gains = gains + (still - still.mean(0)).median(1).values
    return images * (gains.mean() - gains).exp()[:, None, None]


def _maps(images: Tensor) -> tuple[Tensor, Tensor]:
    """[h, w] how much each pixel changes, 1 where it changes much, and how well the edge there stays, 1 for the very same one."""
    grey = F.avg_pool2d(F.pad(images[:, None], (1, 1, 1, 1), mode="replicate"), 3, 1)
    change = grey.std(0)[0]
    much = torch.quantile(change.flatten(), 0.8).clamp(min=0.01)
    across, down = (
        F.pad(grey[..., 2:] - grey[..., :-2], (1, 1)),
        F.pad(grey[:, :, 2:] - grey[:, :, :-2], (0, 0, 1, 1)),
    )
    slopes = torch.cat([across, down], 1)
    mean = slopes.mean(0)
    strength, spread = mean.norm(dim=0), (slopes - mean).square().sum(1).mean(0).sqrt()
    stays = torch.where(strength > _FAINT, strength / (strength + spread + 1e-6), 0)
    return (change / much).clamp(max=1), F.max_pool2d(stays[None, None], (3, 1), 1, (1, 0))[0, 0]


def _scores(change: Tensor, edges: Tensor) -> np.ndarray:  # [h + 1, w] of an outline at the top of that row
    above = F.avg_pool2d(F.pad(change[None, None], (0, 0, _NEAR, 0), mode="replicate"), (_NEAR, 1), 1)[0, 0, :-1]
    below = F.avg_pool2d(F.pad(change[None, None], (0, 0, 0, _NEAR - 1), mode="replicate"), (_NEAR, 1), 1)[0, 0]
    begins = (0.45 + 1.2 * (above - below)).clamp(max=1) * (below < 0.25)
    calm = (1.75 * (0.2 - change).clamp(min=-0.4)).flip(0).cumsum(0).flip(0).clamp(max=3) / (0.1 * len(change))
    scores = 2 * (torch.maximum(edges, begins) - 0.6) + calm
    scores[0] = -9.0  # the whole column
    return F.pad(scores, (0, 0, 0, 1)).double().numpy()


def _outline(scores: np.ndarray) -> np.ndarray:  # [w] row of the best outline in each column, h where there is none
    rows = np.arange(len(scores))
    cost = np.minimum(_STEEP * np.abs(rows[:, None] - rows), _JUMP)
    best, before = scores[:, 0], list[np.ndarray]()
    for column in scores.T[1:]:
        reached = best - cost
        before.append(reached.argmax(1))
        best = reached[rows, before[-1]] + column
    outline = [int(best.argmax())]
    for back in reversed(before):
        outline.append(int(back[outline[-1]]))
    return np.array(outline[::-1])
