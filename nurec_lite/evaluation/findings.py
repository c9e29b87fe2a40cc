# SPDX-License-Identifier: Apache-2.0
"""Findings about a capture, in sentences: missing sensors, dark images, and sensors that disagree."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from nurec_lite.base.left_out import LeftOut
from nurec_lite.capture.checks.verdict import Verdict
from nurec_lite.capture.types import FOUND, Capture
from nurec_lite.config import Config
from nurec_lite.evaluation.drawing import DrawnImage
from nurec_lite.evaluation.learned_corrections import learned_corrections
from nurec_lite.evaluation.measure import Evaluation
from nurec_lite.scene.scene import Scene

FEW = 20  # moments
DARK = 0.15  # mean of the images, 0 to 1


def findings(
    capture: Capture,
    scene: Scene,
    config: Config,
    steps: int,  # that were done
    evaluation: Evaluation | None,
    left_out: LeftOut | None = None,  # collects the parts that fail
    doubts: Sequence[Verdict] = (),  # findings of the capture's checks
) -> list[str]:
    """Returns a sentence for each finding. Learned corrections of sensors count where the checks found nothing."""
    left_out = left_out or LeftOut()
    images = () if evaluation is None else evaluation.images
    sensors = partial(_sensors, capture, scene, config, steps, doubts)
    parts: dict[str, Callable[[], list[str]]] = {
        "The search for missing parts of the capture": lambda: list(_lacking(capture, config)),
        "The search for dark images": lambda: list(_dark(images)),
        "The search for sensors that were corrected": sensors,
    }
    return [sentence for name, search in parts.items() for sentence in left_out.tried(name, search) or []]


def _sensors(capture: Capture, scene: Scene, config: Config, steps: int, doubts: Sequence[Verdict]) -> list[str]:
    learned = None if scene.calibration is None else learned_corrections(scene.calibration, capture)
    if learned is None or not learned.can_be_wrong():
        return []
    from nurec_lite.evaluation.corrected_sensors import corrected_sensors

    return corrected_sensors(learned, capture, config, steps, doubts)


def _lacking(capture: Capture, config: Config) -> Iterator[str]:
    moments, seen = set(capture.moments.images), {f.sensor for f in capture.images}
    if not capture.sweeps:
        yield "No lidar: distances are guessed and learned from images alone, and ranges are not measured."
    elif config.train.lidar_rays == 0:
        yield "The lidar only says where Gaussians begin: no range is learned from it (train.lidar_rays=0)."
    yield from _tracks(capture, config)
    if len(seen) == 1:
        yield f"One camera, {min(seen)}: views from off its path are uncertain."
    if len(moments) < FEW:
        yield f"Few moments, {len(moments)}: figures are means of few images, and nothing is known beyond a short way."


def _tracks(capture: Capture, config: Config) -> Iterator[str]:
    found = Counter(
        c for name, c in zip(capture.tracks.ids, capture.tracks.classes, strict=True) if name.startswith(FOUND)
    )
    searched = capture.sweeps and config.data.tracks.source in ("auto", "lidar")
    if found:
        counted = ", ".join(f"{number} {name}" for name, number in sorted(found.items()))
        yield f"Moving objects without a label: the sweeps show {counted}."
    elif len(capture.tracks) == 0 and searched:
        yield "No tracks: the sweeps show no object that moves for certain. Moving objects are learned as static, and blur."
    elif len(capture.tracks) == 0:
        yield "No tracks: moving objects are learned as static, and blur."


def _dark(images: tuple[DrawnImage, ...]) -> Iterator[str]:
    mean = sum(float(image.truth.mean()) for image in images) / (255 * max(1, len(images)))
    if images and mean < DARK:
        yield f"Dark images, {mean:.2f} of 1 in the mean: that alone makes PSNR high, so compare it with dark images only."
