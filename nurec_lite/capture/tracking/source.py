# SPDX-License-Identifier: Apache-2.0
"""Tracks of a capture from its labels, from its sweeps, or from both."""

from dataclasses import replace
from functools import partial

import torch

from nurec_lite.base.processes import Kind
from nurec_lite.base.waiting import begin, done_apart, end
from nurec_lite.capture.types import Capture, CaptureError
from nurec_lite.geometry.tracks import Tracks

SEARCHER = Kind("the process that searches the capture", replaced=0, patience=600, parents=True)


def begin_search() -> None:
    """Starts the process that will search tracks."""
    begin(SEARCHER, _load_search)


def end_search() -> None:
    """Ends that process, if the capture needed no search."""
    end(SEARCHER)


def _load_search() -> None:
    import scipy.ndimage
    import scipy.optimize
    import scipy.sparse.csgraph
    import scipy.spatial  # noqa: F401  where the search imports them, all others wait

    import nurec_lite.capture.tracking.found  # noqa: F401


def with_tracks(
    capture: Capture,
    source: str,  # auto, capture, lidar or none
    known: Tracks | None = None,  # of a scene that was made from this capture: nothing is searched again
) -> Capture:
    """`auto` takes the labels. Where they are of a part of the drive only, or absent, the sweeps complete them."""
    if source == "none":
        return replace(capture, tracks=Tracks.empty(), searched=False)
    if source == "capture" or (source == "auto" and _complete(capture)):
        return capture
    from nurec_lite.capture.tracking.completed import completed, completed_as  # a start with labels goes without them

    if source == "lidar" and known is None and not capture.sweeps:
        raise CaptureError(f"{capture.name} has no sweeps of a lidar to find tracks in; give data.tracks=auto or none")
    labels = Tracks.empty() if source == "lidar" else capture.tracks
    if known is not None:
        return replace(capture, tracks=completed_as(labels, known.to("cpu", torch.float64)))
    from nurec_lite.capture.tracking.found import find_tracks

    return replace(
        capture, tracks=completed(labels, done_apart(SEARCHER, partial(find_tracks, capture))), searched=True
    )


def _complete(capture: Capture) -> bool:
    return capture.searched or (len(capture.tracks) > 0 and not capture.part_labelled)
