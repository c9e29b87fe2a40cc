# SPDX-License-Identifier: Apache-2.0
"""Pixels at the lower edge that never change are found; drives that show no own vehicle give nothing."""

import math
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pandaset_drive import FOLDER, needs_pandaset
from tiny_capture import Loaded
from torch import Tensor

from nurec_lite.capture.checks.alignment import views_of
from nurec_lite.capture.checks.images import check_images
from nurec_lite.capture.checks.sample import Sample
from nurec_lite.capture.checks.verdict import Level
from nurec_lite.capture.masks.found import TRAVEL, _is_arched, _stays_below, while_driving, without_own_vehicle
from nurec_lite.capture.simulate import simulate
from nurec_lite.capture.simulate.bonnet import bonnet_mask, with_bonnet
from nurec_lite.capture.simulate.world import SimulationConfig
from nurec_lite.capture.types import Capture
from nurec_lite.config import DataConfig, PosesChoice, TracksChoice
from nurec_lite.readers import read_capture

NO_TRACKS, GIVEN = TracksChoice(source="none"), PosesChoice(source="capture")


@lru_cache(maxsize=1)
def street() -> Capture:
    """The bundled street, decoded, with one camera."""
    capture = read_capture(DataConfig(cameras=["camera_0"]))
    return replace(capture, images=tuple(replace(f, load=Loaded(f.load())) for f in capture.images))


def behind_bonnet(capture: Capture, share: float) -> Capture:
    def painted(image: Tensor) -> Tensor:
        return (255 * with_bonnet((image / 255) ** 2.2, share) ** (1 / 2.2)).round().to(torch.uint8)

    return replace(capture, images=tuple(replace(f, load=Loaded(painted(f.load()))) for f in capture.images))


def mask_of(capture: Capture) -> Tensor | None:
    return without_own_vehicle(capture).cameras[0].mask


def exposed_in_turn(capture: Capture, most: float) -> Capture:
    """Brighter and darker by up to this share, in slow turns."""

    def lit(k: int, image: Tensor) -> Tensor:
        return (image * (1 + most * math.sin(0.4 * k))).clamp(max=255).round().to(torch.uint8)

    return replace(
        capture, images=tuple(replace(f, load=Loaded(lit(k, f.load()))) for k, f in enumerate(capture.images))
    )


@pytest.mark.parametrize("exposure", [0.0, 0.2])
@pytest.mark.parametrize("share", [0.06, 0.15, 0.3])
def test_a_bonnet_is_found_where_it_is(share: float, exposure: float) -> None:
    found = mask_of(exposed_in_turn(behind_bonnet(street(), share), exposure))
    truth = bonnet_mask(96, 192, share)
    assert found is not None
    assert (
        float((found & truth).sum()) > 0.9 * float(truth.sum()) and float((found & ~truth).sum()) < 0.02 * truth.numel()
    )


def test_nothing_is_found_without_a_bonnet_or_while_standing_or_in_few_images() -> None:
    capture, bonnet = street(), behind_bonnet(street(), 0.15)
    assert mask_of(exposed_in_turn(capture, 0.3)) is None
    assert mask_of(capture) is None and mask_of(replace(bonnet, images=bonnet.images[::8])) is None
    first = bonnet.images[0]
    still = tuple(replace(f, T_world_rig_start=first.T_world_rig_start) for f in bonnet.images)
    assert mask_of(replace(bonnet, images=still)) is None
    chosen = while_driving(bonnet.images)
    way = (chosen[-1].T_world_rig_start - chosen[0].T_world_rig_start)[:3, 3].norm()
    assert len(chosen) == 12 and float(way) > TRAVEL and while_driving([]) == []
    flat = tuple(replace(f, load=Loaded(torch.full_like(f.load(), 90))) for f in capture.images)
    assert mask_of(replace(capture, images=flat)) is None


def test_a_bonnet_is_a_finding_until_a_mask_leaves_it_out() -> None:
    def about(capture: Capture) -> list[str]:
        return [v.text for v in check_images(Sample(capture)) if v.level is Level.LIKELY]

    bonnet = behind_bonnet(street(), 0.15)
    (finding,) = about(bonnet)
    assert finding.endswith(
        "of the images of camera_0, at their lower edge, never change while the vehicle drives: this may be its own bonnet; "
        "give data.masks=auto, which leaves it out."
    )
    assert about(without_own_vehicle(bonnet)) == [] and about(street()) == []


def test_edges_behind_a_mask_are_compared_with_nothing() -> None:
    capture = street()
    upper = torch.zeros(96, 192, dtype=torch.bool)
    upper[:60] = True
    masked = replace(capture, cameras=(replace(capture.cameras[0], mask=upper),))
    counts = [sum(len(v.points) for v in views_of(Sample(c), c.cameras[0])) for c in (capture, masked)]
    assert 0 < counts[1] < 0.9 * counts[0]


def real(**config: Any) -> dict[str, float]:
    """The share of each camera's images that is left out."""
    cameras = read_capture(DataConfig(masks="auto", **config)).cameras
    return {c.name: 0.0 if c.mask is None else float(c.mask.double().mean()) for c in cameras}


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "drift"), [(0, 0.3), (3, 0.0)])
def test_simulated_bonnets_and_streets_without(seed: int, drift: float) -> None:
    """Small images: exposures that drift once hid the bonnet of one street, and the plain road of another was taken for one."""
    street = SimulationConfig(
        seed=seed, frames=14, cameras=1, width=200 if seed else 120, height=120 if seed else 60, samples=1, beams=2, azimuth_steps=8,
        exposure_drift=drift,
    )  # fmt: skip
    assert mask_of(simulate(street)) is None
    assert mask_of(simulate(replace(street, bonnet=0.15))) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "height", "drift"), [(640, 400, 0.0), (640, 400, 0.3), (320, 200, 0.0), (320, 200, 0.3)]
)
def test_asphalt_below_a_lane_line_is_no_vehicle(width: int, height: int, drift: float) -> None:
    """Cameras that look aside see a line along the street, which stays where it is, and plain road below it."""
    street = SimulationConfig(
        frames=14, cameras=6, width=width, height=height, hfov_deg=100, samples=1, beams=2, azimuth_steps=8, exposure_drift=drift,
    )  # fmt: skip
    assert [c.name for c in without_own_vehicle(simulate(street)).cameras if c.mask is not None] == []


def test_edges_that_stay_or_an_arch_are_evidence_of_a_vehicle() -> None:
    x = np.linspace(-1, 1, 120)
    arch, line, bowl = (np.round(y).astype(np.int64) for y in (60 + 4 * x * x, 60 + 8 * x, 64 - 4 * x * x))
    assert [_is_arched(outline, 75) for outline in (arch, line, bowl, arch + line - 60)] == [True, False, False, False]
    edges = torch.zeros(75, 120)
    assert not _stays_below(line, edges)
    edges[70] = 0.9
    assert _stays_below(np.full(120, 64), edges) and not _stays_below(np.full(120, 68), edges)


@needs_pandaset
@pytest.mark.slow
def test_the_rear_of_pandasets_car_is_found_and_its_front_camera_shows_none() -> None:
    shares = real(
        kind="pandaset", root=str(FOLDER), cameras=["back_camera", "front_camera"], tracks=NO_TRACKS, poses=GIVEN
    )
    assert shares["back_camera"] == pytest.approx(0.18, abs=0.02) and shares["front_camera"] == 0


def test_nothing_is_found_in_a_drive_of_kitti(kitti_root: Path) -> None:
    config = PosesChoice(file=str(kitti_root / "extra/poses_velo.txt"), source="capture")
    assert real(kind="kitti_raw", root=str(kitti_root), cameras=["image_02"], poses=config, tracks=NO_TRACKS) == {
        "image_02": 0
    }
