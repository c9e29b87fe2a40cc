# SPDX-License-Identifier: Apache-2.0
"""The operator footprints: pixels a metre in the image that sees a Gaussian from nearest, as nurec_lite/scene/footprint.py has it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from lenses import ANGULAR, LENSES
from operators import call as called
from operators import check_schema
from tiny_capture import tiny_capture, tiny_state
from torch import Tensor

from nurec_lite.capture.types import Capture
from nurec_lite.native import ops
from nurec_lite.native.operators import footprints as operator
from nurec_lite.native.operators.footprints import footprints as fused_footprints
from nurec_lite.scene.footprint import MARGIN, NEAREST, footprints, most_pixels_a_metre, sights
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(autouse=True, scope="module")
def kernels() -> None:
    ops.load()


def store(scene: Scene, n: int) -> Scene:
    """The first n of the scene's Gaussians, or so many copies of them, an eighth in nodes of actors."""
    g = scene.gaussians
    rows = torch.arange(n) % len(g)
    values = {k: v.detach()[rows].clone() for k, v in vars(g).items()}
    values["node"] = torch.where(torch.arange(n) % 8 == 7, 1 + torch.arange(n) % len(scene.tracks), 0)
    values["means"][values["node"] > 0] *= 0.05
    return replace(scene, gaussians=Gaussians(**values))


def on(scene: Scene, device: str) -> Scene:
    g = Gaussians(**{k: v.to(device) for k, v in vars(scene.gaussians).items()})
    own = {k: getattr(scene, k).to(device) for k in ("sky", "track_translations", "track_quaternions", "exposure")}
    return replace(scene, gaussians=g, tracks=scene.tracks.to(device), **own)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [0, 1, 255, 257, 3001])
def test_as_the_reference_has_them(n: int, device: str) -> None:
    capture, scene = tiny_capture(), store(tiny_state().scene, n)
    images = range(len(capture.images))
    expected, found = footprints(scene, capture, images), fused_footprints(on(scene, device), capture, images).cpu()
    assert n < 200 or 0 < int((expected > 0).sum()) < n
    far = (found - expected).abs() > 1e-4 * expected
    assert int(far.sum()) <= n // 500  # a last bit decides between the sides of a border


def test_without_images_nothing_is_seen() -> None:
    scene = store(tiny_state().scene, 9)
    assert fused_footprints(scene, tiny_capture(), []).tolist() == [0.0] * 9
    assert footprints(scene, tiny_capture(), []).tolist() == [0.0] * 9


def test_without_tracks() -> None:
    scene = store(tiny_state().scene, 100)
    scene.gaussians.node[:] = 0
    capture = tiny_capture()
    whole = sights(scene, capture, [0, 1])
    none = replace(whole, poses=replace(whole.poses, **{k: v[:, :0] for k, v in vars(whole.poses).items()}))
    torch.testing.assert_close(
        operator._pixels_a_metre(scene, none), most_pixels_a_metre(scene, whole), rtol=1e-4, atol=0
    )


def seen(device: str = "cpu", **changes: Any) -> dict[str, Any]:
    found = {
        "means": torch.randn(5, 3), "node": torch.tensor([0, 0, 1, 2, 2]), "lookouts": torch.rand(3, 24), "lenses": torch.rand(3, 22),
        "masked": torch.zeros(9, dtype=torch.bool), "masks": torch.full((3,), -1),
        "valid": torch.ones(3, 2, dtype=torch.bool), "quaternions": torch.randn(3, 2, 4), "translations": torch.randn(3, 2, 3),
    }  # fmt: skip
    return {k: v.to(device) for k, v in (found | changes).items()} | {"nearest": NEAREST, "margin": MARGIN}


@pytest.mark.parametrize("device", DEVICES)
def test_torch_s_own_checks(device: str) -> None:
    args = seen(device)
    given = [v for v in args.values() if isinstance(v, Tensor)], NEAREST, MARGIN
    check_schema(torch.ops.nurec_lite.footprints.default, given)


WRONG = {
    "means has shape": {"means": torch.randn(5, 4)},
    "node has shape": {"node": torch.zeros(4, dtype=torch.int64)},
    "node holds 3": {"node": torch.tensor([0, 3, 0, 0, 0])},
    "node holds -1": {"node": torch.tensor([0, -1, 0, 0, 0])},
    "lookouts has shape": {"lookouts": torch.rand(3, 23)},
    "lenses has shape": {"lenses": torch.rand(2, 22)},
    "masked is Byte": {"masked": torch.zeros(9, dtype=torch.uint8)},
    "masks holds 9": {"masks": torch.tensor([-1, 9, 0])},
    "masks has shape": {"masks": torch.zeros(2, dtype=torch.int64)},
    "valid is Float": {"valid": torch.ones(3, 2)},
    "quaternions has shape": {"quaternions": torch.rand(3, 1, 4)},
    "translations is Double": {"translations": torch.zeros(3, 2, 3, dtype=torch.float64)},
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_arrays_are_refused(words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        called("footprints", seen(**WRONG[words]))


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="nearest is 0, but must be above 0"):
        called("footprints", seen() | {"nearest": 0.0})


# ---- lenses and masks


def seen_by_odd_cameras(kind: str, lens: bool, mask: bool) -> Capture:
    """Through a lens, a pinhole, or both; with the lower right part of the first camera masked, and all of the second one's border."""
    capture = tiny_capture()
    first, second, *rest = capture.cameras
    model, numbers = LENSES[kind]
    focal = first.width / (3.5 if kind in ANGULAR else 2)
    if lens:
        first = replace(first, lens=model, distortion=numbers, fx=focal, fy=focal)
    if mask:
        corner, border = (torch.zeros(c.height, c.width, dtype=torch.bool) for c in (first, second))
        corner[first.height // 3 :, first.width // 4 :] = True
        border[[0, -1]], border[:, [0, -1]] = True, True
        first, second = replace(first, mask=corner), replace(second, mask=border)
    return replace(capture, cameras=(first, second, *rest))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("kind", ["plain", *LENSES])
def test_lenses_and_masks(kind: str, mask: bool, device: str) -> None:
    """A fisheye sees Gaussians beside and behind it, too. Those under a mask, and those beyond a masked border, do not count."""
    scene = store(tiny_state().scene, 1500)
    capture = seen_by_odd_cameras(kind if kind != "plain" else "fisheye", kind != "plain", mask)
    images = range(len(capture.images))
    whole = replace(capture, cameras=tuple(replace(camera, mask=None) for camera in capture.cameras))
    for some in (images, [k for k in images if capture.images[k].sensor == capture.cameras[0].name][:1]):
        expected, found = footprints(scene, capture, some), fused_footprints(on(scene, device), capture, some).cpu()
        unmasked = footprints(scene, whole, some)
        assert int(((found - expected).abs() > 1e-3 * expected).sum()) <= 3
        assert bool((expected <= unmasked).all()) and torch.equal(expected, unmasked) != mask
        assert 0 < int((expected > 0).sum()) < 1500


def test_tracks_under_a_mask_in_double_precision() -> None:
    """The reference, at the float64 that tests of parity use."""
    scene = store(tiny_state().scene, 500)
    g = Gaussians(**{k: v.double() if v.is_floating_point() else v for k, v in vars(scene.gaussians).items()})
    scene = replace(scene, gaussians=g)
    capture = seen_by_odd_cameras("fisheye", True, True)
    images = range(len(capture.images))
    double, single = (
        footprints(scene, capture, images),
        fused_footprints(store(tiny_state().scene, 500), capture, images),
    )
    assert int(((single - double).abs() > 1e-3 * double).sum()) <= 2
