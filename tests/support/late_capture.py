# SPDX-License-Identifier: Apache-2.0
"""A capture whose sensors disagree on the time."""

from dataclasses import replace

from nurec_lite.capture.trajectory import trajectory_of
from nurec_lite.capture.types import Capture, ImageFrame


def with_clock(
    capture: Capture,
    camera: str,  # its name
    ahead: float,  # seconds
) -> Capture:
    """Its images bear times that are later than when they were taken, and so they have the poses that the rig had then."""
    path = trajectory_of(capture)

    def stamped(frame: ImageFrame) -> ImageFrame:
        if frame.sensor != camera:
            return frame
        start, end = frame.time_start + ahead, frame.time_end + ahead
        poses = {"T_world_rig_start": path.at(start), "T_world_rig_end": path.at(end)}
        return replace(frame, time_start=start, time_end=end, **poses)

    assert capture.split is not None
    return replace(capture, images=tuple(map(stamped, capture.images))).with_split(capture.split.name)
