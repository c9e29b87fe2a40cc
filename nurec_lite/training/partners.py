# SPDX-License-Identifier: Apache-2.0
"""Images that share a step of several ranks, paired by their times: each rank waits for the slowest of them.

A step has a share of images for each rank. The first rank's shares stay where they are, so that the order in time stays random. The other
ranks' shares change places among the steps of a window: the k-th by time joins the k-th of the first rank. An image keeps its epoch, its
rank and the others of its share, so that no step has to be recorded anew. All ranks read the same times after the same steps (no_sync), so
they plan the same windows. One process alone measures no times, nor does a budget of steps (nurec_lite/training/step_clock.py): the order
then is that of the seed.
Source: none that we know of; sequences of about equal length share a batch in the training of language models.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence

from nurec_lite.capture.types import Capture
from nurec_lite.training.order import Order

WINDOW = 128  # steps that are planned at once
KNOWN = 0.5  # share of the images with a measured time, at least
Images = tuple[int, ...]  # indices into Capture.images
Steps = dict[int, Images]  # images of all ranks by step


class Partners:
    """Times of images, and the steps that were planned by them."""

    def __init__(self) -> None:
        self.times: dict[int, int] = {}  # microseconds, the last ones that were measured, by index into Capture.images
        self._planned: Steps = {}  # of the present window and the one before

    def of(self, step: int) -> Images | None:
        """Images of a step of the last windows; None: as the seed has them."""
        return self._planned.get(step)

    def learn(
        self,
        images: Sequence[int],  # of all ranks in a step
        times: Sequence[int],  # microseconds of each rank
    ) -> None:
        """Notes the times of a step. A rank with several images shares its time among them."""
        each = len(images) // len(times)
        self.times |= {image: times[k // each] // each for k, image in enumerate(images)}

    def plan(self, step: int, order: Order, ranks: int, capture: Capture) -> None:
        """Plans a window that begins with this step, once enough times are known."""
        if step % WINDOW or step in self._planned or len(self.times) < KNOWN * len(order.frames):
            return
        kept = {k: images for k, images in self._planned.items() if k >= step - WINDOW}
        window = {k: order.of(k) for k in range(step, step + WINDOW)}
        self._planned = kept | window
        times = estimated(order.frames, self.times, capture)
        for group in _epochs(window, order):
            self._planned |= paired(group, ranks, times)


def estimated(
    frames: Sequence[int],
    times: Mapping[int, int],  # of some of them
    capture: Capture,
) -> dict[int, int]:
    """Times of all frames. A frame without one gets that of the nearest moment of its sensor: costs change little from moment to moment."""
    known: dict[str, list[tuple[int, int]]] = defaultdict(list)  # moments and times, by sensor
    for image, time in times.items():
        known[capture.images[image].sensor].append((capture.moments.images[image], time))
    for pairs in known.values():
        pairs.sort()
    every = sorted(pair for pairs in known.values() for pair in pairs)
    return {
        i: times[i] if i in times else _nearest(i, known.get(capture.images[i].sensor, every), capture) for i in frames
    }


def _nearest(image: int, known: Sequence[tuple[int, int]], capture: Capture) -> int:
    moment = capture.moments.images[image]
    k = bisect(known, (moment, 0))
    return min(known[max(k - 1, 0) : k + 1], key=lambda pair: abs(pair[0] - moment))[1]


def _epochs(window: Steps, order: Order) -> list[Steps]:
    """The steps of each epoch. A step across two epochs stays, since its images come twice in them."""
    epochs: dict[int, Steps] = defaultdict(dict)
    for step, images in window.items():
        epoch = order.epoch(step)
        if epoch is not None:
            epochs[epoch][step] = images
    return list(epochs.values())


def paired(
    steps: Steps,  # no image twice
    ranks: int,
    times: Mapping[int, int],
) -> Steps:
    """The steps with shares of equal place by time on all ranks."""

    def time_of(share: Images) -> int:
        return sum(times[image] for image in share)

    each = len(next(iter(steps.values()))) // ranks
    first, *others = ([images[r * each : (r + 1) * each] for images in steps.values()] for r in range(ranks))
    by_time = sorted(zip(first, steps, strict=True), key=lambda pair: time_of(pair[0]))
    columns = [sorted(shares, key=time_of) for shares in others]
    return {step: sum(rest, share) for (share, step), *rest in zip(by_time, *columns, strict=True)}
