# SPDX-License-Identifier: Apache-2.0
"""Renders of the frames that are measured. A frame that cannot be decoded or rendered costs no other."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nurec_lite.base.left_out import LeftOut
from nurec_lite.base.transfer import SideStream, tensors_of
from nurec_lite.capture.types import Capture, Frame
from nurec_lite.evaluation.ahead import IMAGE, DecodedAhead
from nurec_lite.scene.scene import Scene
from nurec_lite.training.batches import render_views_in_batches
from nurec_lite.training.stages import AnyView, Stages

log = logging.getLogger("nurec_lite")


@dataclass(frozen=True)
class EachFrame:
    """The common part of measuring images and sweeps."""

    stages: Stages
    scene: Scene  # with the corrections of all cameras
    capture: Capture
    left_out: LeftOut
    advance: Callable[[], object]  # after each frame
    decoded: DecodedAhead  # frames of the capture

    def at(
        self,
        kind: str,  # IMAGE or SWEEP
        chosen: Sequence[int],
        view: Callable[[int, Any], tuple[Any, AnyView]],  # of a frame and its content, after the caller's own data
    ) -> Iterator[tuple[int, Any, Any, Any]]:  # index, the caller's own data, view, render
        """Yields frames with their renders; threads decode while others are rendered. A frame that cannot be decoded is left out. If a
        launch of several fails, the remaining frames are rendered one by one."""
        waiting, side = list(chosen), SideStream(self.scene.sky.device)
        frames: Sequence[Frame] = self.capture.images if kind == IMAGE else self.capture.sweeps

        def coming(some: Sequence[int]) -> Iterator[tuple[tuple[int, Any], AnyView]]:
            for i in some:
                content = self.decoded.of((kind, i))
                with side.inside():  # copies do not wait for the renders that are queued
                    made = self.left_out.tried(measuring(frames[i]), lambda: view(i, _raised(content)))  # noqa: B023  called at once
                side.hand_over(tensors_of(made), side.mark())
                if made is None:
                    waiting.remove(i)
                else:
                    yield (i, made[0]), made[1]

        def seen(some: Sequence[int]) -> Iterator[tuple[int, Any, Any, Any]]:
            for (i, given), one_view, found in render_views_in_batches(
                self.stages, self.scene, cast(Any, coming(some))
            ):
                waiting.remove(i)
                yield i, given, one_view, found

        try:
            yield from seen(chosen)
        except Exception as error:
            log.debug("frames are looked at one by one", exc_info=error)
        for i in tuple(waiting):
            yield from self.left_out.tried(measuring(frames[i]), lambda: list(seen([i]))) or []  # noqa: B023  called at once


def _raised(content: Any) -> Any:
    if isinstance(content, Exception):
        raise content
    return content


def measuring(frame: Frame) -> str:
    """The part of a result that one frame is."""
    return f"Measuring {frame.sensor} frame {frame.index}"
