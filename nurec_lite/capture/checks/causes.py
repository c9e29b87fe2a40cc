# SPDX-License-Identifier: Apache-2.0
"""Possible causes of findings about poses, cameras and boxes: a lidar that is off looks to cameras as if all of them were, and poses
that are off look to boxes as if these were."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from nurec_lite.capture.checks.box_guesses import MADE, of_another_frame
from nurec_lite.capture.checks.boxes import labelled
from nurec_lite.capture.checks.conventions import Convention
from nurec_lite.capture.checks.corrected import AnyFrame, with_mounting
from nurec_lite.capture.checks.guesses import CLOCK, YAW, Guess, corrected
from nurec_lite.capture.checks.placed import KINDS
from nurec_lite.capture.trajectory import Retimed, trajectory_of
from nurec_lite.capture.types import Capture, SweepFrame
from nurec_lite.geometry.lidar import Lidar
from nurec_lite.geometry.se3 import invert

FRAMES = 5  # largest shift of poses and labels that is tried
ALIKE = {CLOCK: 0.06, YAW: 1.5}  # largest differences of cameras with one cause: seconds, and degrees
SAME = 0.02  # largest difference of two mountings that are the same
PLACES = ("ahead", "left", "up")  # kinds that are about places
OTHERS = 0.75  # metres, or degrees, of the other kinds


@dataclass(frozen=True)
class Cause:
    meaning: str  # completes "all agree if"
    remedy: str
    correct: Callable[[Capture], Capture]
    ranges: float = 1.0  # factor of ranges


def of_conventions(conventions: Sequence[Convention]) -> Iterator[Cause]:
    for c in conventions:
        meaning = c.meaning.replace("they are", "the poses are", 1).replace("their ", "the poses' ", 1)
        remedy = c.remedy.replace("them", "the poses", 1) if c.meaning.startswith(("they", "their")) else c.remedy
        yield Cause(meaning, remedy, c.corrected, c.ranges)


# ---- all cameras are off alike


def of_cameras(capture: Capture, guesses: Sequence[Guess]) -> Iterator[Cause]:
    """A lidar that is off, or all cameras; `guesses` are those of all cameras that tell anything."""
    kinds = {guess.kind for guess in guesses}
    if len(kinds) != 1 or len(capture.lidars) != 1:
        return
    kind, amounts, lidar = kinds.pop(), [guess.amount for guess in guesses], capture.lidars[0].name
    if kind not in _WORDS or max(amounts) - min(amounts) > ALIKE.get(kind, OTHERS):
        return
    first, amount = guesses[0], sum(amounts) / len(amounts)
    cameras = "the camera" if len(capture.cameras) == 1 else "all cameras"
    if kind == CLOCK:
        late = partial(_with_a_clock, seconds=-amount)
        yield Cause(
            f"the sweeps of {lidar} were taken {_seconds(-amount)}", f"correct the time stamps of {lidar}", late
        )
        remedy = f"correct the time stamps of {cameras}"
        yield Cause(f"the images of {cameras} were taken {_seconds(amount)}", remedy, partial(corrected, guesses))
        return
    change = first_change(capture, first)
    mounted = partial(_with_a_lidar, change=change)
    placed, remedy = f"{lidar} {_WORDS[kind](-amount)}", f"correct T_rig_lidar of {lidar}"
    if kind in PLACES and not bool(capture.lidars[0].T_rig_lidar[:3, 3].any()):
        placed, remedy = (
            f"the place in T_rig_lidar of {lidar}, which is (0, 0, 0), is missing: {placed}",
            f"give the place in T_rig_lidar of {lidar}",
        )
    yield Cause(placed, remedy, mounted)
    words = _WORDS[kind](amount)
    words = words if len(capture.cameras) == 1 else words.replace("sits", "sit", 1).replace("looks", "look", 1)
    yield Cause(f"{cameras} {words}", f"correct the mounting{'s' * (len(capture.cameras) > 1)} of {cameras}",
                partial(corrected, guesses))  # fmt: skip


def of_mounting(lidar: Lidar) -> Iterator[Cause]:
    """Other ways to read the mounting of the only lidar."""
    T, matrix = lidar.T_rig_lidar.double(), f"T_rig_lidar of {lidar.name}"
    transposed, opposite = T.clone(), T.clone()
    transposed[:3, :3], opposite[:3, 3] = T[:3, :3].T, -T[:3, 3]
    known = [T]
    for meaning, remedy, changed in (
        (f"{matrix} is inverted", "invert it", invert(T)),
        (f"the rotation in {matrix} is transposed", "transpose it", transposed),
        (f"the translation in {matrix} has the opposite sign", "turn its sign", opposite),
    ):
        if all(float((changed - other).abs().max()) > SAME for other in known):
            known.append(changed)
            yield Cause(meaning, f"{remedy} {MADE}", with_mounting(lidar.name, partial(_placed, changed)))


def _placed(other: Tensor, said: Tensor) -> Tensor:  # [4, 4] each
    return other


def first_change(capture: Capture, guess: Guess) -> Tensor:  # [4, 4]
    """The motion on the rig that moves a lidar against a camera as a guess moves the camera against it."""
    return capture.camera(guess.camera.name).T_rig_cam.double() @ invert(guess.camera.T_rig_cam.double())


def _seconds(seconds: float) -> str:
    return f"{abs(seconds):.2f} s {'earlier' if seconds < 0 else 'later'} than their stamps say"


def _of_kind(words: tuple[str, str], amount: float) -> str:
    return words[int(amount < 0)].removeprefix("the camera ").format(abs(amount))


_WORDS: dict[str, Callable[[float], str]] = {
    CLOCK: _seconds,
    YAW: partial(_of_kind, ("looks {:.0f}° farther left", "looks {:.0f}° farther right")),
    **{kind.name: partial(_of_kind, kind.words) for kind in KINDS if kind.name in ("pitch", "ahead", "left", "up")},
}


def _with_a_lidar(capture: Capture, change: Tensor) -> Capture:
    lidars = (replace(lidar, T_rig_lidar=change @ lidar.T_rig_lidar.double()) for lidar in capture.lidars)
    return replace(capture, lidars=tuple(lidars))


def _with_a_clock(capture: Capture, seconds: float) -> Capture:
    """Sweeps of later times, with the poses of these."""
    path = trajectory_of(capture)

    def later(frame: SweepFrame) -> SweepFrame:
        start, end = frame.time_start + seconds, frame.time_end + seconds
        poses = path.at(start), path.at(end)
        return SweepFrame(frame.sensor, frame.index, start, end, *poses, load=Retimed(frame.load, seconds))

    return replace(capture, sweeps=tuple(map(later, capture.sweeps)))


# ---- boxes lie elsewhere


def of_boxes(capture: Capture, lidar: Lidar) -> Iterator[tuple[Cause, Cause]]:
    """Poses of a few frames earlier or later, each with the labels that boxes alone do not tell from them."""
    times = torch.tensor([f.time_mid for f in capture.sweeps if f.sensor == lidar.name], dtype=torch.float64)
    period = float(times.diff().median()) if len(times) > 1 else 0.0
    for n in (k for k in range(-FRAMES, FRAMES + 1) if k and period and len(labelled(capture).tracks)):
        seconds, way = n * period, "early" if n > 0 else "late"
        meaning, remedy = (
            f"the poses are {abs(n)} frame{'s' * (abs(n) > 1)} too {way}",
            f"give each frame its own pose {MADE}",
        )
        late = f"the labels are {abs(n)} frame{'s' * (abs(n) > 1)} {'late' if n > 0 else 'early'}"
        labels = Cause(late, f"correct the frames of the labels {MADE}", partial(_with_labels, seconds=-seconds))
        yield Cause(meaning, remedy, partial(_with_a_path, seconds=seconds)), labels


def _with_a_path(capture: Capture, seconds: float) -> Capture:
    path = trajectory_of(capture)

    def moved(frame: AnyFrame) -> AnyFrame:
        start, end = path.at(frame.time_start + seconds), path.at(frame.time_end + seconds)
        return replace(frame, T_world_rig_start=start, T_world_rig_end=end)

    return replace(capture, images=tuple(map(moved, capture.images)), sweeps=tuple(map(moved, capture.sweeps)))


def _with_labels(capture: Capture, seconds: float) -> Capture:
    return replace(capture, tracks=of_another_frame(capture.tracks, trajectory_of(capture), seconds))
