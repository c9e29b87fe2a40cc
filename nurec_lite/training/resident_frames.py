# SPDX-License-Identifier: Apache-2.0
"""Training frames that stay on the device: which steps need them, how large they are, and a sweep's rays by sector."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from nurec_lite.base.transfer import tensors_of
from nurec_lite.capture.decoders import decoded_bytes, stated_rays
from nurec_lite.training.shots import ImageShot, ShotPlan, SweepShot, count_sectors, sectors_of

GROUP_BYTES = 12  # of the groups of a sweep's rays, a ray, about
Frame = tuple[str, int]  # image or sweep, index into Capture.images or Capture.sweeps


@dataclass(frozen=True)
class KeptSweep:
    """A sweep on the device."""

    shot: SweepShot  # all rays, sector by sector if steps take some
    ends: tuple[int, ...] | None  # ends of the sectors, in rays, after a 0; None: steps take all rays

    def ray_slices(
        self,
        sectors: Sequence[int],  # ascending
    ) -> list[slice]:
        """Returns the rays of the sectors. Neighbouring sectors share a slice."""
        assert self.ends is not None
        found: list[slice] = []
        for begin, end in ((self.ends[k], self.ends[k + 1]) for k in sectors):
            if found and found[-1].stop == begin:
                found[-1] = slice(found[-1].start, end)
            elif begin < end:
                found.append(slice(begin, end))
        return found or [slice(0, 0)]


def sorted_by_sector(
    shot: SweepShot,
    columns: int,  # of a sector
) -> KeptSweep:
    lidar = shot.view.lidar
    sectors = sectors_of(shot.sweep, lidar, columns)
    counts = torch.bincount(sectors, minlength=count_sectors(lidar, columns))
    order = sectors.argsort(stable=True)
    rays = shot.sweep.select(order)
    view = replace(shot.view, directions=rays.directions, fractions=shot.view.fractions[order])
    return KeptSweep(replace(shot, sweep=rays, view=view), (0, *counts.cumsum(0).tolist()))


def frames_from(plan: ShotPlan, first: int) -> list[Frame]:
    """All training frames, those that steps from the first on need before the others. A rank may need some of them late."""
    found, every = dict[Frame, None](), _training_frames(plan)
    for step in range(first, first + 2 * steps_an_epoch(plan)):  # an epoch may be half over
        found |= dict.fromkeys(frames_of(plan, step))
        if len(found) == len(every):
            break
    return list(found | dict.fromkeys(every))


def frames_of(plan: ShotPlan, step: int) -> list[Frame]:
    images, sweeps = plan.chosen(step)
    return [*(("image", i) for i in images), *(("sweep", i) for i in sweeps)]


def steps_an_epoch(plan: ShotPlan) -> int:
    """Steps until each training frame has come, at most."""
    return max(len(plan.split.train_images), len(plan.split.train_sweeps) * plan.sweeps_every)


def frame_bytes(plan: ShotPlan, frame: Frame) -> int:
    """Bytes that a frame takes on the device, about: a sweep as its lidar states it."""
    (kind, index), capture = frame, plan.capture
    if kind == "image":
        return decoded_bytes(capture.camera(capture.images[index].sensor))
    lidar = capture.lidar(capture.sweeps[index].sensor)
    return decoded_bytes(lidar) + GROUP_BYTES * stated_rays(lidar)


def device_bytes(kept: ImageShot | KeptSweep) -> int:
    """Bytes of a frame on the device. Tensors that share memory count once."""
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors_of(kept)}.values())


def capture_bytes(plan: ShotPlan) -> int:
    """Bytes that the training frames take on the device, about."""
    return sum(frame_bytes(plan, frame) for frame in _training_frames(plan))


def smallest_window(
    plan: ShotPlan,
    in_use: int,  # further steps that a frame keeps its memory after its use
) -> int:
    """Bytes of the frames in use, of the present step's, and of those of the next two, at most."""
    largest = {"image": 0, "sweep": 0}
    for frame in _training_frames(plan):
        largest[frame[0]] = max(largest[frame[0]], frame_bytes(plan, frame))
    a_step = plan.images_a_step * largest["image"] + plan.sweeps_a_step * largest["sweep"]
    return (in_use + 3) * a_step


def _training_frames(plan: ShotPlan) -> list[Frame]:
    sweeps = plan.split.train_sweeps if plan.lidar_rays else ()
    return [*(("image", i) for i in plan.split.train_images), *(("sweep", i) for i in sweeps)]
