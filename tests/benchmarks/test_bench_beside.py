# SPDX-License-Identifier: Apache-2.0
"""Steps compared: gsplat's own loop is as described, a contender that cannot run does not stop the others, and it runs from end to end."""

import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("gsplat")
import gsplat
import torch
from peer_standin import STANDIN
from tiny_arguments import TINY
from tiny_capture import tiny_capture, tiny_state
from torch import Tensor

from benchmarks.step.bench_beside import OURS, OWN, main
from benchmarks.step.gsplat_loop import STEPS, GsplatLoop, parameters_of, shots_of
from nurec_lite.geometry.se3 import transform
from nurec_lite.peer.rasterize import mid_exposure
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.splat.views import camera_view
from nurec_lite.training.losses import image_loss

SHORT = ["--rounds", "2", "--steps", "2", "--uncounted", "1", "--warmup", "1", "--warmup-seconds", "0"]
CPU = torch.device("cpu")


def rasterization(
    means: Tensor, quats: Tensor, scales: Tensor, opacities: Tensor, colors: Tensor, viewmats: Tensor, Ks: Tensor,
    width: int, height: int, **rest: Any,
) -> tuple[Tensor, Tensor, dict[str, Any]]:  # fmt: skip
    """gsplat's, as far as its own signature takes the arguments; colours from harmonics as seen from the camera."""
    inspect.signature(gsplat.rasterization).bind(
        means, quats, scales, opacities, colors, viewmats, Ks, width, height, **rest
    )
    eye = -viewmats[0, :3, :3].T @ viewmats[0, :3, 3]
    colour = (STANDIN.spherical_harmonics(rest["sh_degree"], means - eye, colors) + 0.5).clamp(min=0)
    drawn, opacity, info = STANDIN.rasterization(
        means, quats, scales, opacities, colour, viewmats, Ks, width, height, 0.2, rest["packed"], "RGB+ED"
    )
    return drawn[..., :3], opacity, info


class Strategy(gsplat.MCMCStrategy):  # type: ignore[misc]  # gsplat has no types
    """Its checks, and its callers; its own work needs a GPU."""

    def step_post_backward(
        self, params: Any, optimizers: Any, state: Any, step: int, info: dict[str, Any], lr: float
    ) -> None:
        assert not any(p.grad is not None for p in params.values()) and state["binoms"].shape == (51, 51)
        self.calls = [*getattr(self, "calls", []), (step, lr)]


STANDS_IN: Any = SimpleNamespace(rasterization=rasterization, MCMCStrategy=Strategy, __version__="stand-in")


def tiny_loop() -> GsplatLoop:
    scene = tiny_state().scene
    return GsplatLoop(STANDS_IN, parameters_of(scene, 0.5), shots_of(tiny_capture(), CPU)[:1], image_loss, 1000)


def test_gsplats_loop_learns() -> None:
    loop = tiny_loop()
    before = {name: param.detach().clone() for name, param in loop.params.items()}
    losses = []
    for _ in range(4):
        losses.append(loop.loss(loop.drawn(loop.shots[0])[0], loop.shots[0].image / 255).item())
        loop()
    assert losses == sorted(losses, reverse=True) and losses[0] > 0
    assert all(not torch.equal(before[name], param) for name, param in loop.params.items())
    assert [step for step, _ in loop.strategy.calls] == [STEPS // 2 + k for k in range(4)]
    assert loop.strategy.calls[0][1] == pytest.approx(1.6e-5)  # half a run: a tenth of the first rate


def test_it_begins_with_the_gaussians_of_a_moment() -> None:
    scene = tiny_state().scene
    found, g = parameters_of(scene, 0.5), collect_gaussian_parameters(scene, 0.5)
    assert torch.equal(found["means"], g.means) and torch.equal(torch.cat([found["sh0"], found["shN"]], 1), g.sh)
    torch.testing.assert_close(found["scales"].exp(), g.scales)
    torch.testing.assert_close(found["opacities"].sigmoid(), g.opacities)


def test_poses_are_those_in_the_middle_of_the_exposure() -> None:
    capture, points = tiny_capture(), torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    assert capture.split is not None
    shots = shots_of(capture, CPU)
    assert len(shots) == len(capture.split.train_images)
    view = camera_view(capture, capture.images[capture.split.train_images[-1]], CPU)
    expected = transform(mid_exposure(view), points - view.centre())
    torch.testing.assert_close(transform(shots[-1].viewmat[0], points), expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(shots[-1].image, capture.images[capture.split.train_images[-1]].load())


def test_it_runs_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "beside.json"
    main([*TINY, *SHORT, "--out", str(out)])
    report = json.loads(out.read_text())
    rows = report["rows"]
    assert list(rows) == [*OURS, OWN]
    for name in ("baseline", "all"):
        assert rows[name]["status"] is None and len(rows[name]["single_step_ms"]) == 4
        assert rows[name]["step_ms"]["quarter"] <= rows[name]["step_ms"]["median"] and rows[name]["gaussians"] > 0
    assert "no plain torch reference" in rows["rendered"]["status"] and "runs on CUDA only" in rows[OWN]["status"]
    assert report["environment"]["device"].startswith("cpu") and "gsplat" not in report["environment"]
    assert "baseline" in capsys.readouterr().out
