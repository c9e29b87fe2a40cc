# SPDX-License-Identifier: Apache-2.0
"""Images that share a step of several ranks, paired by the lengths of their lists: each rank waits for the slowest of them.

A step has a share of images for each rank. The first rank's shares stay where they are, so that the order in time stays random. The other
ranks' shares change places among the steps of a window: the k-th by length joins the k-th of the first rank. An image keeps its epoch, its
rank and the others of its share, so that no step has to be recorded anew. The time of an image grows with the entries of its lists:
correlation 0.96, on a drive of 30 s. All ranks read the same entries after the same steps (no_sync), so they plan the same windows. One
process alone keeps the order of the seed, and so do CPUs (nurec_lite/training/exchange.py).
Source: none that we know of; sequences of about equal length share a batch in the training of language models.
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence

from nurec_lite.capture.types import Capture
from nurec_lite.training.order import Order

WINDOW = 128  # steps that are planned at once
KNOWN = 0.1  # share of the images with known entries, at least
Images = tuple[int, ...]  # indices into Capture.images
Steps = dict[int, Images]  # images of all ranks by step


class Partners:
    """Lengths of the lists of images, and the steps that were planned by them."""

    def __init__(self) -> None:
        self.entries: dict[int, int] = {}  # of an image's lists when it was last seen, by index into Capture.images
        self._planned: Steps = {}  # of the present window and the one before

    def of(self, step: int) -> Images | None:
        """Images of a step of the last windows; None: as the seed has them."""
        return self._planned.get(step)

    def learn(
        self,
        images: Sequence[int],  # of all ranks in a step
        entries: Sequence[int],  # of the lists of each
    ) -> None:
        """Notes the entries of a step's images."""
        self.entries |= zip(images, entries, strict=True)

    def plan(self, step: int, order: Order, ranks: int, capture: Capture) -> None:
        """Plans a window that begins with this step, once enough entries are known."""
        if step % WINDOW or step in self._planned or len(self.entries) < KNOWN * len(order.frames):
            return
        kept = {k: images for k, images in self._planned.items() if k >= step - WINDOW}
        window = {k: order.of(k) for k in range(step, step + WINDOW)}
        self._planned = kept | window
        entries = estimated(order.frames, self.entries, capture)
        for group in _epochs(window, order):
            self._planned |= paired(group, ranks, entries)


def estimated(
    frames: Sequence[int],
    entries: Mapping[int, int],  # of some of them
    capture: Capture,
) -> dict[int, int]:
    """Entries of all frames. A frame without them gets those of the nearest moment of its sensor: they change little from moment to
    moment."""
    known: dict[str, list[tuple[int, int]]] = defaultdict(list)  # moments and entries, by sensor
    for image, length in entries.items():
        known[capture.images[image].sensor].append((capture.moments.images[image], length))
    for pairs in known.values():
        pairs.sort()
    every = sorted(pair for pairs in known.values() for pair in pairs)
    return {
        i: entries[i] if i in entries else _nearest(i, known.get(capture.images[i].sensor, every), capture)
        for i in frames
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
    entries: Mapping[int, int],
) -> Steps:
    """The steps with shares of equal place by length on all ranks."""

    def length(share: Images) -> int:
        return sum(entries[image] for image in share)

    each = len(next(iter(steps.values()))) // ranks
    first, *others = ([images[r * each : (r + 1) * each] for images in steps.values()] for r in range(ranks))
    by_length = sorted(zip(first, steps, strict=True), key=lambda pair: length(pair[0]))
    columns = [sorted(shares, key=length) for shares in others]
    return {step: sum(rest, share) for (share, step), *rest in zip(by_length, *columns, strict=True)}
