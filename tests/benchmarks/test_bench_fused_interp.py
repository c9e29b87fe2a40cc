# SPDX-License-Identifier: Apache-2.0
"""The benchmark of interpolation: its versions agree and are right, its bytes are right, and it runs from end to end on a CPU."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.opt.bench_fused_interp import disagreement, least_bytes, main
from benchmarks.opt.interpolate_versions import (
    VERSIONS,
    Version,
    differences,
    unavailable,
    upstream_of,
    with_gradients,
)
from benchmarks.opt.interpolate_workload import Workload, invented, make_workload
from nurec_lite.geometry.tracks import Tracks

CPU = torch.device("cpu")
EAGER = [name for name in VERSIONS if name != "compiled"]  # the compiler takes half a minute
SMALL = ["--device", "cpu", "--rounds", "2", "--warmup", "1", "--copy-mib", "1"]
SMALL += [
    "--tracks",
    "3",
    "--keys",
    "5",
    "--queries",
    "2",
    "--actors",
    "2000",
    "--background",
    "1000",
    "--scale",
    "0.02",
]


def ready(name: str, w: Workload) -> Version:
    assert unavailable(name, w) is None
    return VERSIONS[name]


def driving() -> Workload:
    """A car that in a second drives 10 m along x and turns 90 degrees to the left, seen in the middle; one Gaussian of the world."""
    half = math.sqrt(0.5)
    tracks = Tracks(
        ("car",), ("Car",), torch.ones(1, 3), (0, 2), torch.tensor([4.0, 5.0], dtype=torch.float64),
        torch.tensor([[0.0, 0, 0], [10, 0, 0]]), torch.tensor([[1.0, 0, 0, 0], [half, 0, 0, half]]),
    )  # fmt: skip
    means, quats = torch.tensor([[2.0, 0, 0], [7, 8, 9]]), torch.tensor([[2.0, 0, 0, 0], [0, 0, 0, 3]])
    return make_workload(means, quats, torch.tensor([1, 0]), tracks, [4.5], CPU)


def corners() -> Workload:
    """A track without Gaussians, one with a single keyframe, one that has ended, one of the largest share."""
    w = invented(tracks=4, keys=3, queries=2, actors=40, background=6, seed=1, device=CPU)
    offsets = (0, 3, 4, 7, 10)
    keep = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11]
    with torch.no_grad():
        t = w.tracks
        tracks = replace(
            t, offsets=offsets, times=t.times[keep] - torch.tensor([0.0] * 4 + [9.0] * 3 + [0.0] * 3),
            translations=t.translations[keep], quaternions=t.quaternions[keep],
        )  # fmt: skip
        node = torch.tensor([0] * 6 + [2] * 5 + [3] * 5 + [4] * 30)
        means, quats = torch.cat([w.still_means, w.means]), torch.cat([w.still_quats, w.quats])
    return make_workload(means, quats, node, tracks, w.times.tolist(), CPU)


@pytest.mark.parametrize("name", EAGER)
def test_a_drive_by_hand(name: str) -> None:
    w = driving()
    means, quats, velocities, rotations = ready(name, w).run(w)
    root, spin = math.sqrt(2), math.pi / 2
    turned = [math.cos(math.pi / 8), 0, 0, math.sin(math.pi / 8)]
    torch.testing.assert_close(means[0, -1], torch.tensor([5 + root, root, 0]))
    torch.testing.assert_close(quats[0, -1], torch.tensor(turned))
    torch.testing.assert_close(velocities[0, -1], torch.tensor([10 - spin * root, spin * root, 0]))
    torch.testing.assert_close(rotations, torch.tensor([[turned]]))
    assert means.shape == (1, 2 if VERSIONS[name].copies else 1, 3)
    if VERSIONS[name].copies:  # the background comes first, as it was, but with a unit quaternion
        assert means[0, 0].tolist() == [7, 8, 9] and quats[0, 0].tolist() == [0, 0, 0, 1]
        assert velocities[0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", EAGER)
def test_versions_agree(name: str) -> None:
    w = corners()
    assert w.sizes == (0, 5, 5, 30) and w.starts.tolist() == [0, 0, 5, 10, 40]
    double = w.to(torch.float64)
    truth = with_gradients(VERSIONS["vectorised_copy"], double, upstream_of(double)[True])
    version = ready(name, w)
    found = with_gradients(version, w, upstream_of(w)[version.copies])
    assert max(differences(found, truth).values()) < 1e-5
    assert len(found) == (10 if version.copies else 8)
    assert truth["d_translations"].abs().sum() > 1 and truth["d_quaternions"].abs().sum() > 1


def test_least_bytes_by_hand() -> None:
    """A row is read with 7 floats, and written with 10 for each of 3 times."""
    assert least_bytes(10, 0, 3, "forward") == 10 * (28 + 3 * 40)
    assert least_bytes(10, 5, 3, "forward") == 15 * 148
    assert least_bytes(10, 0, 3, "forward_backward") == 10 * (148 + 3 * 40 + 28 + 28)
    assert least_bytes(10, 5, 3, "forward_backward") == 10 * 324 + 5 * (148 + 3 * 28 + 28)


def test_differences_by_hand() -> None:
    truth = {"means": torch.tensor([[[9.0], [4.0], [2.0]]]), "d_means": torch.tensor([0.0, 0.5])}
    found = {"means": torch.tensor([[[4.0], [1.0]]]), "d_means": torch.tensor([0.25, 0.5])}
    assert differences(found, truth) == {"means": 0.25, "d_means": 0.25}
    assert differences({"d_means": torch.tensor([math.nan, 0.5])}, truth) == {"d_means": math.inf}


def test_the_file_of_a_run_on_a_cpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "interpolate.json"
    main([*SMALL, "--versions", *EAGER, "--out", str(out)])
    report = json.loads(out.read_text())
    assert report["command"].startswith("python benchmarks/opt/bench_fused_interp.py --device cpu")
    assert report["workload"] == {
        "name": "invented, Gaussians scaled by 0.02", "scale": 0.02, "tracks": 3, "keys": 15, "queries": 2,
        "actors": 40, "background": 20,
    }  # fmt: skip
    assert list(report["versions"]) == EAGER and report["copy"]["bytes"] == 2 << 20
    for name, row in report["versions"].items():
        assert row["status"] is None and max(row["relative_errors"].values()) < 1e-5, name
        for kind in ("forward", "forward_backward"):
            figures, background = row[kind], 20 if row["copies_background"] else 0
            assert len(figures["single_ms"]) == 2
            assert figures["least_bytes"] == least_bytes(40, background, 2, kind)
            rate = figures["least_bytes"] / figures["ms"]["median"] / 1e6  # GB/s
            assert figures["share_of_copy"] == pytest.approx(rate / report["copy"]["gb_per_s"])
    assert report["versions"]["fused"]["forward"]["times_fused"]["median"] == 1
    shown = capsys.readouterr().out
    assert "40 Gaussians on actors, 20 of the background, cpu" in shown and "scaled by 0.02" in shown


def test_what_agrees() -> None:
    """Torch's sums over a keyframe's Gaussians may be off by more; ours not, and nothing else."""
    fine = {"d_means": 9e-6, "d_quaternions": 2e-5}
    assert disagreement("vectorised", fine) is None
    assert disagreement("fused", fine) == "disagrees: d_quaternions is off by 2.0e-05"
    assert disagreement("vectorised", fine | {"d_means": 1.1e-5}) == "disagrees: d_means is off by 1.1e-05"
    assert disagreement("vectorised", fine | {"d_quaternions": 1.1e-4}) == "disagrees: d_quaternions is off by 1.1e-04"


@pytest.mark.gpu
def test_versions_agree_on_a_gpu(tmp_path: Path) -> None:
    out = tmp_path / "gpu.json"
    main([*SMALL, "--device", "cuda", "--versions", *EAGER, "--out", str(out)])
    assert all(row["status"] is None for row in json.loads(out.read_text())["versions"].values())
