# SPDX-License-Identifier: Apache-2.0
"""The option `resident` begins to decode once the first scene needs no more frames."""

from functools import partial
from typing import Any

import pytest
import torch
from same_shots import assert_same
from tiny_capture import tiny_capture, tiny_config

from nurec_lite.backends import build_stages
from nurec_lite.base.options import parameters_of
from nurec_lite.opt.all import resident
from nurec_lite.scene import init
from nurec_lite.training.start import make_state


def test_frames_come_before_the_first_step_once_the_first_scene_has_looked(monkeypatch: pytest.MonkeyPatch) -> None:
    stages, config = build_stages({"resident": parameters_of("resident")}), tiny_config(steps=2)
    order: list[str] = []
    looked, stored = init.seen, resident.Store

    def seen(asked: init.Asked) -> init.Seen:
        order.append("looked")
        return looked(asked)

    def store(*args: Any) -> resident.Store:
        order.append("begun")
        return stored(*args)

    monkeypatch.setattr(init, "seen", seen)
    monkeypatch.setattr(resident, "Store", store)
    begin = partial(stages.feed.begin_frames, stages)
    state = make_state(config, tiny_capture(), torch.device("cpu"), frames=stages.feed.frames, begin_frames=begin)
    assert order == ["looked", "begun"]
    assert_same(stages.feed.fetch(stages, state), state.plan.load(0))
    assert order == ["looked", "begun"]  # the first step uses these
    stages.close()
