# SPDX-License-Identifier: Apache-2.0
"""The benchmark of a step's feed: it refuses other shots than the baseline's, and runs from end to end."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_capture import tiny_shots, tiny_state

from benchmarks.common.feeding import block, check, main, same
from benchmarks.opt.bench_collect_once import Variant
from benchmarks.opt.bench_resident import SETS as RESIDENT
from nurec_lite.base.timing import Timing
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages

TINY = ["ops=reference", "device=cpu", "data.downscale=8", "data.frames=[0,10]", "train.lidar_rays=64", "model.points=200",
        "model.raised_points=20", "model.far_points=20", "model.actor_points=20", "density.cap=100"]  # fmt: skip


def variant(stages: Stages) -> Variant:
    return Variant("this one", stages, tiny_state(), Timing(torch.device("cpu")))


def test_other_shots_are_found() -> None:
    check([variant(reference_stages())], 3)
    late = reference_stages().wrap(next_batch=lambda inner: lambda plan, step: inner(plan, step + (step == 2)))
    with pytest.raises(AssertionError, match="this one gives other shots at step 2"):
        check([variant(late)], 3)


@pytest.mark.parametrize("part", ["image", "ranges", "row"])
def test_one_bit_is_enough(part: str) -> None:
    shots = tiny_shots((0,), (1,))
    (image,), (sweep,) = shots.images, shots.sweeps
    one_off = {
        "image": replace(shots, images=(replace(image, image=image.image ^ 1),)),
        "ranges": replace(shots, sweeps=(replace(sweep, sweep=replace(sweep.sweep, ranges=sweep.sweep.ranges + 1)),)),
        "row": replace(shots, images=(replace(image, view=replace(image.view, row=-image.view.row)),)),  # type: ignore[operator]
    }
    assert same(shots, shots) and not same(one_off[part], shots)


def test_only_the_counted_steps_count() -> None:
    own = variant(reference_stages())
    times = block(own, 2, 3)
    assert own.state.step == 5 and len(times["feed_ms"]) == 3 and len(times["wall_ms"]) == 1
    assert 0 < sum(times["feed_ms"]) / 3 < times["wall_ms"][0]


def test_the_file_of_a_run_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, few = tmp_path / "feed.json", ["--rounds", "2", "--steps", "2", "--uncounted", "1", "--warmup", "1"]
    main("resident", "", (*RESIDENT[:1], *RESIDENT[2:]), [*few, "--checked", "2", "--out", str(out), *TINY])
    report = json.loads(out.read_text())
    assert report["command"].startswith("python benchmarks/opt/bench_resident.py")
    assert set(report["sets"]) == {"baseline", "resident"} and len(report["rounds_wall_ms"]["resident"]) == 2
    assert report["sets"]["resident"]["feed_ms"]["median"] > 0
    assert "resident" in capsys.readouterr().out
