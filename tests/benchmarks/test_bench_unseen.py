# SPDX-License-Identifier: Apache-2.0
"""The benchmark of Gaussians that no step sees: they are far under the ground, and it runs from end to end."""

import json
from pathlib import Path

import pytest
from tiny_arguments import TINY
from tiny_capture import tiny_state

from benchmarks.scaling.bench_unseen import DEEP, add_unseen, main
from nurec_lite.scene.gaussians import BACKGROUND


def test_added_gaussians_come_first_and_lie_deep() -> None:
    state = tiny_state()
    n, lowest = len(state.scene.gaussians), float(state.scene.gaussians.means.detach()[:, 2].min())
    add_unseen(state, 1000)
    g = state.scene.gaussians
    heights = g.means.detach()[:, 2]
    assert len(g) == n + 1000 and bool((g.node[:1000] == BACKGROUND).all()) and not bool((g.node.diff() < 0).any())
    assert float(heights[:1000].max()) < lowest - DEEP / 2 and float(heights[1000:].min()) == lowest
    assert state.optimizer.param_groups[0]["params"][0] is g.means


@pytest.mark.parametrize("more", [[], ["--sweeps"]])
def test_it_runs(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([*TINY, *more, "--unseen", "0", "300", "--steps", "2", "--warmup", "1", "--out", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    assert [row["unseen"] for row in found["rows"]] == [0, 300] and all(row["step_ms"] > 0 for row in found["rows"])
    assert found["rows"][1]["gaussians"] == found["rows"][0]["gaussians"] + 300
    slope = (found["rows"][1]["step_ms"] - found["rows"][0]["step_ms"]) / 300
    assert found["sweeps"] == bool(more)
    assert found["ms_a_million"] == pytest.approx(1e6 * slope)
    assert f"{found['ms_a_million']:.4f} ms a million" in capsys.readouterr().out


@pytest.mark.parametrize("sizes", [["300"], ["300", "300"], ["0", "-1"]])
def test_a_line_needs_two_sizes(sizes: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*TINY, "--steps", "2", "--unseen", *sizes])
    assert "--unseen needs two different numbers" in capsys.readouterr().err
