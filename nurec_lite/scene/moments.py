# SPDX-License-Identifier: Apache-2.0
"""Images and sweeps of moments that spread over the drive, on the device: each is decoded once for all that a scene is made from."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import is_
from typing import Any

import torch
from torch import Tensor

from nurec_lite.base.pool import in_threads
from nurec_lite.base.shared_results import EarlyResults, shared_results
from nurec_lite.base.transfer import upload
from nurec_lite.capture.decoders import decode_apart, decoded_sizes, decoders
from nurec_lite.capture.deskew import middle_poses, rig_motions, world_points
from nurec_lite.capture.looks import note
from nurec_lite.capture.types import Capture, ImageFrame, SweepFrame
from nurec_lite.capture.without import loaded
from nurec_lite.geometry.lidar import Sweep
from nurec_lite.geometry.se3 import invert
from nurec_lite.geometry.steady import SteadyMotion
from nurec_lite.scene.beyond import raised_positions, sky_sums
from nurec_lite.scene.gaussians import BACKGROUND
from nurec_lite.scene.kept import A_WANTED, MOST, Kept
from nurec_lite.scene.looked_at import Frames, moments_looked_at
from nurec_lite.scene.pictures import Picture, colours_in
from nurec_lite.scene.points import Actors, Points, actors_in, assign_to_actors

FEW = 20  # moments, an example of fewer
MUCH = 1 << 28  # bytes
GUESSED_INTENSITY = 0.1  # of points that the lidar has not seen
Decoded = tuple[list[tuple[ImageFrame, Tensor]], list[tuple[SweepFrame, Sweep]]]  # [H, W, 3] uint8 each, and rays


@dataclass(frozen=True)
class Wanted:
    """Approximate numbers of points for a scene."""

    background: int = 0
    actors: int = 0
    raised: int = 0


@dataclass(frozen=True)
class Asked:
    """Input of the search through all moments."""

    capture: Capture
    far: Tensor  # [f, 3] metres, world, float64: points that may be seen; on the device, where everything is done
    sky_height: int  # rows of the panorama
    wanted: Wanted = Wanted()


@dataclass(frozen=True)
class Motions:
    """Motions while the frames are taken, on the device, by the frame's id."""

    rig: dict[int, SteadyMotion]
    T_cam_world: dict[int, Tensor]  # [4, 4] in the middle of each image
    actors: dict[int, Actors]  # of each sweep

    def picture(self, capture: Capture, frame: ImageFrame, image: Tensor) -> Picture:
        key = id(frame)
        return Picture(capture.camera(frame.sensor), frame, image, self.rig[key], self.T_cam_world[key])


@dataclass(frozen=True)
class Moment:
    """Points and colours that one moment shows."""

    background: Points  # where rays returned
    actors: Points  # where they returned from actors, in the frames of their nodes
    raised: Points  # above the background, where an image sees them
    far_colour: Tensor  # [f, 3] of the points asked for
    far_seen: Tensor  # [f] bool
    sky: Tensor  # [4, 2 height^2] int64, as `sky_sums` has it


def _decoded(frames: Frames) -> Decoded:
    images, sweeps = frames
    return [(frame, loaded(frame)) for frame in images], [(frame, frame.load()) for frame in sweeps]


_early: list[EarlyResults[Tensor | Sweep]] = []


def begin_decoding(
    capture: Capture,  # with its split
    device: torch.device,
) -> None:
    """Lets a fork server, if one waits, decode the first frames that `seen` will look at."""
    frames = _all_of(moments_looked_at(capture))
    sizes = _sizes(capture, frames)
    if decode_apart(device, sizes):
        begun = EarlyResults.begun(_jobs(frames), decoders(), max(sizes), for_gpu=True)
        _early.extend([] if begun is None else [begun])


def end_decoding() -> None:
    """Ends that work, if nothing has looked at the frames to the end."""
    while _early:
        _early.pop().close()


def _jobs(frames: list[ImageFrame | SweepFrame]) -> list[Callable[[], Tensor | Sweep]]:
    return [frame.load for frame in frames]


def _values(capture: Capture, frames: list[ImageFrame | SweepFrame]) -> Iterator[Tensor | Sweep]:
    """Decoded frames; those that were begun early, if they are the first ones of these."""
    jobs = _jobs(frames)
    begun = len(_early[-1].jobs) if _early else 0
    if begun and begun <= len(jobs) and all(map(is_, _early[-1].jobs, jobs)):
        yield from _early[-1].results
        jobs = jobs[begun:]
    end_decoding()
    yield from shared_results(jobs, decoders(), max(_sizes(capture, frames)), for_gpu=True)


def _decoded_apart(capture: Capture, moments: list[Frames], device: torch.device) -> Iterator[Decoded]:
    """Decoded frames of each moment, by processes, on the device."""
    values = _values(capture, _all_of(moments))
    for images, sweeps in moments:
        pictures = [(frame, _arrived(capture, frame, values, device)) for frame in images]
        yield pictures, [(frame, _arrived(capture, frame, values, device)) for frame in sweeps]
    end_decoding()


def _all_of(moments: list[Frames]) -> list[ImageFrame | SweepFrame]:
    found: list[ImageFrame | SweepFrame] = []
    for images, sweeps in moments:
        found += [*images, *sweeps]
    return found


def _sizes(capture: Capture, frames: Sequence[ImageFrame | SweepFrame]) -> list[int]:
    """Bytes of the decoded frames."""
    sizes = decoded_sizes(capture)
    return [sizes[frame.sensor] for frame in frames]


def _arrived(capture: Capture, frame: ImageFrame | SweepFrame, values: Iterator[Any], device: torch.device) -> Any:
    value = next(values)
    note(capture, [(frame, value)])
    return value.to(device, copy=True)


def _noted(capture: Capture, frames: Frames) -> Decoded:
    decoded = _decoded(frames)
    note(capture, [*decoded[0], *decoded[1]])
    return decoded


def _look(asked: Asked, motions: Motions, decoded: Decoded) -> Moment:
    capture, device = asked.capture, asked.far.device
    pictures = [motions.picture(capture, frame, image.to(device)) for frame, image in decoded[0]]
    frames, sweeps = [f for f, _ in decoded[1]], [_returns(sweep.to(device)) for _, sweep in decoded[1]]
    lidars, actors = [capture.lidar(f.sensor) for f in frames], [motions.actors[id(f)] for f in frames]
    world = list(map(world_points, frames, sweeps, lidars, [motions.rig[id(f)] for f in frames]))
    raised = list(map(raised_positions, sweeps, world, lidars))
    parts = [*world, *raised, asked.far]
    values = colours_in(pictures, torch.cat(parts))
    colours, sights = (value.split([len(part) for part in parts]) for value in values)
    measured = list(map(_measured, actors, sweeps, world, colours, sights))
    background, moving = _parted(_joined(measured, device), any(len(some.node) for some in actors))
    guessed = map(_guessed, raised, colours[len(sweeps) :], sights[len(sweeps) :])
    above = _joined([p.select(p.coloured) for p in guessed], device)
    return Moment(background, moving, above, colours[-1], sights[-1], sky_sums(pictures, asked.sky_height, device))


def _measured(actors: Actors, sweep: Sweep, world: Tensor, colour: Tensor, coloured: Tensor) -> Points:
    node, local = assign_to_actors(actors, sweep, world)
    return Points(local, node, colour, coloured, sweep.intensities)


def _joined(parts: list[Points], device: torch.device) -> Points:
    return Points.cat(parts) if parts else Points.empty(device)


def _returns(sweep: Sweep) -> Sweep:
    return sweep.select(torch.nonzero(sweep.returned).squeeze(-1))


def _guessed(xyz: Tensor, colour: Tensor, coloured: Tensor) -> Points:
    node = torch.full((len(xyz),), BACKGROUND, device=xyz.device)
    return Points(xyz, node, colour, coloured, torch.full_like(colour[:, 0], GUESSED_INTENSITY))


def _parted(points: Points, actors: bool) -> tuple[Points, Points]:
    """The background's points, and those of actors if there are any."""
    if not actors:
        return points, Points.empty(points.xyz.device)
    of_background = points.node == BACKGROUND
    return points.select(of_background), points.select(~of_background)


@dataclass(frozen=True)
class Seen:
    """Points and colours of all moments; no more points than fit their share of memory."""

    background: Points
    actors: Points
    raised: Points
    far: Points  # those of the points asked for that an image saw, with the colour that the first one gives
    sky: Tensor  # [4, 2 height^2]


def seen(asked: Asked) -> Seen:
    """The usable images and sweeps, frame by frame."""
    device, wanted = asked.far.device, asked.wanted
    background, actors, raised = (Kept(device, n) for n in (wanted.background, wanted.actors, wanted.raised))
    far = _guessed(asked.far, torch.zeros_like(asked.far, dtype=torch.float32), torch.zeros_like(asked.far[:, 0]) > 0)
    sky = torch.zeros(4, 2 * asked.sky_height**2, dtype=torch.int64, device=device)
    for moment in _one_by_one(asked):
        background.add(moment.background)
        actors.add(moment.actors)
        raised.add(moment.raised)
        colour = torch.where(far.coloured[:, None], far.colour, moment.far_colour)
        far = replace(far, colour=colour, coloured=far.coloured | moment.far_seen)
        sky += moment.sky
    return Seen(background.take(), actors.take(), raised.take(), far.select(far.coloured), sky)


def _one_by_one(asked: Asked) -> Iterator[Moment]:
    """Threads decode the frames of a moment while those before it are worked on; on a CPU they do this, too."""
    frames, device = moments_looked_at(asked.capture), asked.far.device
    decode, look = partial(_noted, asked.capture), partial(_look, asked, _motions(asked.capture, frames, device))
    if device.type == "cpu":
        return in_threads(lambda moment: look(decode(moment)), frames)
    if decode_apart(device, _sizes(asked.capture, _all_of(frames))):
        return map(look, _decoded_apart(asked.capture, frames, device))
    return map(look, in_threads(decode, frames))


def _motions(capture: Capture, moments: list[Frames], device: torch.device) -> Motions:
    every = _all_of(moments)
    images, sweeps = [f for some, _ in moments for f in some], [f for _, some in moments for f in some]
    return Motions(
        dict(zip(map(id, every), rig_motions(every, device), strict=True)),
        dict(zip(map(id, images), _cameras(capture, images, device), strict=True)),
        dict(zip(map(id, sweeps), actors_in(capture.tracks, sweeps, device), strict=True)),
    )


def _cameras(capture: Capture, images: list[ImageFrame], device: torch.device) -> tuple[Tensor, ...]:
    """T_cam_world [4, 4] in the middle of each image."""
    if not images:
        return ()
    mountings = torch.stack([capture.camera(frame.sensor).T_rig_cam for frame in images])
    return upload(invert(middle_poses(images) @ mountings), device).unbind()


def fewer_frames(
    capture: Capture,
    wanted: int,  # points of the background
) -> str:
    """The remedy where there is no memory to look at all frames, for messages."""
    numbers = sorted({*capture.moments.images, *capture.moments.sweeps})
    fewer = numbers[: max(2, min(FEW, len(numbers) // 2))]
    more = [", smaller images, as in data.downscale=2,"] if _in_flight(capture) > MUCH else []
    more += [", a smaller model.points"] if A_WANTED * wanted > MOST else []
    return (
        f"read fewer, as in data.frames=[{fewer[0]},{fewer[-1] + 1}]{''.join(more)}, or use a machine with more memory"
    )


def _in_flight(capture: Capture) -> int:
    """Bytes of the images that are decoded at a time, about."""
    size = decoded_sizes(capture)
    moments = max(1, len(set(capture.moments.images)))
    return 2 * torch.get_num_threads() * sum(size[frame.sensor] for frame in capture.images) // moments
