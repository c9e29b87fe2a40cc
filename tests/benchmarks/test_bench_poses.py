# SPDX-License-Identifier: Apache-2.0
"""The benchmark of poses reads a drive by each source and writes its measurements."""

import json
from pathlib import Path

from tiny_capture import tiny_capture

from benchmarks.odometry import bench_poses
from nurec_lite.capture.pack import write_pack


def test_each_source_is_measured(tmp_path: Path) -> None:
    write_pack(tiny_capture(), tmp_path / "tiny.pack")
    keys, out = ["data=pack", f"data.root={tmp_path / 'tiny.pack'}"], tmp_path / "poses.json"
    assert bench_poses.main([*keys, "--sources", "capture", "auto", "--out", str(out)]) == 0
    sources = json.loads(out.read_text())["sources"]
    assert set(sources) == {"capture", "auto"}
    assert sources["capture"]["sharpness"] == sources["auto"]["sharpness"]  # a simulated drive keeps its poses
    assert 0 < sources["auto"]["sharpness"]["lidar"]["median_m"] < 0.05
