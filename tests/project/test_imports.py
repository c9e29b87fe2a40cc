# SPDX-License-Identifier: Apache-2.0
"""A folder imports only folders below it, and no file is part of a circle of imports."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "nurec_lite"
# From the lowest layer up. A file at the top of the package is a folder of its own, but the commands share the top layer.
LAYERS = (
    "base", "bounds", "config", "geometry", "capture", "capture.masks", "capture.odometry", "capture.checks", "capture.tracking",
    "capture.arrow", "capture.kitti", "capture.kitti360", "capture.argoverse2", "capture.colmap", "capture.waymo", "capture.nuscenes",
    "capture.pack", "capture.pandaset", "capture.rosbag", "capture.ncore", "readers",
    "scene", "splat", "native.operators", "native", "capture.simulate", "training", "peer", "evaluation", "opt.post", "opt.all",
    "opt.lab", "opt",
    "backends", "cli", "output", "output.surface",
    "output.interchange", "report",
    "report.comparison", "report.inspection", "profiling", "profiling.trace", "profiling.summary", "profiling.ncu",
    "profiling.draw", "profiling.compare", "profiling.record", "viewer", "service", "verbs", "api",
)  # fmt: skip
TOP_FILES = 18  # at most: twelve commands and six others
LONG_LINES = 400  # of a file; a longer one gives its reason in CONTRIBUTING.md


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    paths = sorted(PACKAGE.rglob("*.py"))
    names = [".".join(("nurec_lite", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in paths]
    return {name.removesuffix(".__init__"): path for name, path in zip(names, paths, strict=True)}


def imported(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """The package's modules that a file imports, at its top or inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nurec_lite":
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from (name if name in known else node.module for name in full)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "nurec_lite")


@cache
def folder_of(path: Path) -> str:
    *folders, file = path.relative_to(PACKAGE).with_suffix("").parts
    if folders:
        return ".".join(folders)
    return file if file in LAYERS else "verbs"


MODULES = modules()


@pytest.fixture(scope="module")
def arrows() -> list[tuple[str, str]]:
    """Each import between modules of the package."""
    return [(name, target) for name, path in MODULES.items() for target in imported(path, MODULES)]


def test_every_folder_has_its_layer() -> None:
    assert {folder_of(path) for path in MODULES.values()} == set(LAYERS)


@pytest.mark.parametrize("folder", LAYERS)
def test_a_folder_imports_only_folders_below_it(folder: str, arrows: list[tuple[str, str]]) -> None:
    level = {name: i for i, name in enumerate(LAYERS)}
    inside = [(a, b) for a, b in arrows if folder_of(MODULES[a]) == folder and MODULES[b] != PACKAGE / "__init__.py"]
    back = [f"{a} imports {b}" for a, b in inside if level[folder_of(MODULES[b])] > level[folder]]
    assert not back, "move the code that both need to a lower folder"


def test_no_file_stands_in_a_circle(arrows: list[tuple[str, str]]) -> None:
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for a, b in arrows:
        graph[a].add(b)
    assert len(tuple(TopologicalSorter(graph).static_order())) == len(MODULES)  # CycleError names the circle


def test_options_are_reached_only_by_the_function_that_builds_the_stages(arrows: list[tuple[str, str]]) -> None:
    assert [f"{a} imports {b}" for a, b in arrows if b.startswith("nurec_lite.opt") and "nurec_lite.opt" not in a] == []
    assert "import_module(" in (PACKAGE / "base/options.py").read_text()


def test_few_files_stand_at_the_top() -> None:
    assert len([path for path in PACKAGE.iterdir() if path.is_file()]) <= TOP_FILES


def test_long_files_give_their_reason() -> None:
    root, reasons = PACKAGE.parent, (PACKAGE.parent / "CONTRIBUTING.md").read_text()
    files = [p for top in ("nurec_lite", "kernels", "tests", "benchmarks", "scripts") for p in (root / top).rglob("*")]
    sources = [p for p in files if p.suffix in (".py", ".cu", ".cuh", ".cpp", ".h")]
    long = [str(p.relative_to(root)) for p in sources if len(p.read_text().splitlines()) > LONG_LINES]
    assert [name for name in long if f"`{name}`" not in reasons] == []
