# SPDX-License-Identifier: Apache-2.0
"""FLIP has the values of NVIDIA's package, LPIPS is computed where its weights lie, and both keep to their time."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from nurec_lite.base.left_out import LeftOut
from nurec_lite.evaluation import perceptual
from nurec_lite.evaluation.flip import PIXELS_A_DEGREE, flip, mean_flip
from nurec_lite.evaluation.lpips import LpipsError, load_lpips
from nurec_lite.evaluation.measure import FLIPS
from nurec_lite.evaluation.perceptual import Perceptual

CPU = torch.device("cpu")
y, x = np.mgrid[:40, :60].astype(np.float32)
IMAGE = np.stack([0.5 + 0.5 * np.sin(x / 7 + k) * np.cos(y / (5 + k)) for k in range(3)], -1).astype(np.float32)
NOISE = np.sin(37 * np.arange(IMAGE.size)).reshape(IMAGE.shape)
OTHERS = {
    "darker": 0.8 * IMAGE, "moved": np.roll(IMAGE, 2, 1), "swapped": IMAGE[..., ::-1],
    "noisy": np.clip(IMAGE + 0.1 * NOISE, 0, 1), "edge": np.where(x[..., None] > 30, IMAGE, 1 - IMAGE),
}  # fmt: skip


def tensor(image: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(image, dtype=np.float32))


@pytest.mark.parametrize(  # as flip-evaluator 1.7 gives them
    ("name", "pixels", "mean"),
    [
        ("darker", PIXELS_A_DEGREE, 0.523906), ("darker", 30.0, 0.501154), ("moved", PIXELS_A_DEGREE, 0.388967),
        ("moved", 30.0, 0.385321), ("swapped", PIXELS_A_DEGREE, 0.605932), ("swapped", 30.0, 0.629761),
        ("noisy", PIXELS_A_DEGREE, 0.089508), ("noisy", 30.0, 0.246425), ("edge", PIXELS_A_DEGREE, 0.518878), ("edge", 30.0, 0.499823),
    ],
)  # fmt: skip
def test_flip_has_the_values_of_the_package(name: str, pixels: float, mean: float) -> None:
    found = flip(tensor(OTHERS[name]), tensor(IMAGE), pixels)
    assert found.shape == (40, 60) and float(found.mean()) == pytest.approx(mean, abs=5e-6)


def test_flip_is_0_for_equal_images_and_1_from_green_to_blue() -> None:
    assert mean_flip(tensor(IMAGE), tensor(IMAGE)) == 0
    green, blue = (torch.eye(3)[k].expand(8, 9, 3) for k in (1, 2))
    assert mean_flip(green, blue) == pytest.approx(1, abs=1e-6)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of the right shapes in a hub cache of its own; their values are random."""
    torch.manual_seed(0)
    shapes = {0: (64, 3, 11), 3: (192, 64, 5), 6: (384, 192, 3), 8: (256, 384, 3), 10: (256, 256, 3)}
    alexnet = {f"features.{n}.weight": 0.05 * torch.randn(o, i, k, k) for n, (o, i, k) in shapes.items()}
    alexnet |= {f"features.{n}.bias": torch.zeros(o) for n, (o, _, _) in shapes.items()}
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    torch.save(alexnet, folder / "alexnet-owt-7be5be79.pth")
    linear = {f"lin{k}.model.1.weight": torch.rand(1, o, 1, 1) for k, (o, _, _) in enumerate(shapes.values())}
    torch.save(linear, folder / "lpips_alex.pth")
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    return folder


def test_lpips_grows_with_the_difference(weights: Path) -> None:
    lpips, image = load_lpips(CPU), torch.rand(64, 80, 3)
    little, much = ((image + size * torch.randn(64, 80, 3)).clamp(0, 1) for size in (0.05, 0.3))
    assert lpips(image, image) == 0 < lpips(little, image) < lpips(much, image)
    with pytest.raises(LpipsError, match="80 x 20 pixels, fewer than 63 a side"):
        lpips(image[:20], image[:20])


def test_weights_that_lack_or_are_others_are_sentences(weights: Path) -> None:
    torch.save({"other": torch.zeros(1)}, weights / "lpips_alex.pth")
    with pytest.raises(LpipsError, match="the weights lack 'lin0"):
        load_lpips(CPU)
    (weights / "lpips_alex.pth").write_bytes(b"no weights")
    with pytest.raises(LpipsError, match=r"lpips_alex\.pth cannot be read"):
        load_lpips(CPU)
    (weights / "alexnet-owt-7be5be79.pth").unlink()
    with pytest.raises(LpipsError, match=r"AlexNet's weights .* are not in"):
        load_lpips(CPU)


def measured(
    seconds: float, images: int, monkeypatch: pytest.MonkeyPatch, each: float = 1.0, most: int | None = None
) -> Perceptual:
    """Every image takes a second of a clock that nothing else moves."""
    clock = [0.0]

    def work(*_: Tensor | None) -> Tensor:
        clock[0] += each
        return torch.tensor(0.25)

    monkeypatch.setattr(perceptual.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(perceptual, "mean_flip", work)
    found = Perceptual(seconds, images, CPU, LeftOut(), most)
    for _ in range(images):
        found.add(tensor(IMAGE), tensor(IMAGE))
    return found


def test_images_that_are_measured_spread_over_the_drive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perceptual, "load_lpips", lambda device: (_ for _ in ()).throw(LpipsError("no weights")))
    found = measured(4.0, 16, monkeypatch)
    assert found.summary() == {"flip": 0.25} and len(found.flips) == 4
    assert found.notes == [
        "LPIPS is left out: no weights.", "FLIP is of 4 of 16 images, spread over the drive; measure.seconds=N measures as many as fit.",
    ]  # fmt: skip
    assert measured(0.0, 16, monkeypatch).summary() == {}


@pytest.mark.parametrize("most", [120, FLIPS])
def test_a_number_of_images_spreads_over_the_drive(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are of all cameras, although cameras take turns."""
    found = measured(1e6, 360, monkeypatch, most=most)
    assert len(found.flips) == len(found.chosen) == most and len(measured(1e6, 31, monkeypatch, most=most).flips) == 31
    assert {number % 6 for number in found.chosen} == set(range(6))
    assert max(b - a for a, b in pairwise(sorted(found.chosen))) <= 2 * 360 // most
