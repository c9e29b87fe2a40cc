# SPDX-License-Identifier: Apache-2.0
"""Includes of kernels/ point down, too: a folder includes only folders below it, no file is part of a circle, neither renderer
includes the other, and only bindings know torch."""

import os
import re
from graphlib import TopologicalSorter

import pytest

from nurec_lite.base.paths import resource

KERNELS = resource("kernels")
# From the lowest layer up. The two renderers share the top layer.
LAYERS = (
    {"math"}, {"common"}, {"project"}, {"scene"}, {"appearance"}, {"sensor"}, {"loss"}, {"update"}, {"simulate"},
    {"raster_tiles", "raster_warps/bin"}, {"raster_warps/blend"}, {"raster_warps/backward"}, {"raster_warps/views"},
)  # fmt: skip
RENDERERS = ("raster_tiles", "raster_warps")
MOST_BINDINGS = 40  # files of bindings: one an operator, and their common ones
SOURCES = {
    str(path.relative_to(KERNELS)): path.read_text()
    for path in sorted(KERNELS.rglob("*/*"))
    if path.suffix in (".h", ".cuh", ".cu", ".cpp")
}


def included(file: str) -> list[str]:
    """The files of kernels/ that a file includes."""
    names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', SOURCES[file], re.MULTILINE)
    return [os.path.normpath(os.path.join(os.path.dirname(file), name)) for name in names]


INCLUDES = {file: included(file) for file in SOURCES}


def folder_of(file: str) -> str:
    return os.path.dirname(file)


def test_every_include_is_a_file_of_the_project() -> None:
    assert [(a, b) for a, targets in INCLUDES.items() for b in targets if b not in SOURCES] == []


def test_every_folder_has_its_layer() -> None:
    assert {folder_of(file) for file in SOURCES} == set().union(*LAYERS)


@pytest.mark.parametrize("folder", [folder for layer in LAYERS for folder in sorted(layer)])
def test_a_folder_includes_only_what_stands_below_it(folder: str) -> None:
    level = {name: k for k, names in enumerate(LAYERS) for name in names}
    arrows = [(a, b) for a, targets in INCLUDES.items() for b in targets if folder_of(a) == folder != folder_of(b)]
    back = [f"{a} includes {b}" for a, b in arrows if level[folder_of(b)] >= level[folder]]
    assert not back, "move the code that both need to a lower folder, such as project/"


def test_neither_renderer_includes_the_other() -> None:
    tiles, warps = RENDERERS
    arrows = [(a, b) for a, targets in INCLUDES.items() for b in targets]
    assert [(a, b) for a, b in arrows if a.startswith(tiles) and b.startswith(warps)] == []
    assert [(a, b) for a, b in arrows if a.startswith(warps) and b.startswith(tiles)] == []


def test_no_file_stands_in_a_circle_of_includes() -> None:
    assert len(tuple(TopologicalSorter(INCLUDES).static_order())) == len(SOURCES)  # CycleError names the circle


def test_only_bindings_know_torch() -> None:
    knows = re.compile(r"#\s*include\s+<(torch|ATen|c10)/|\bat::Tensor\b|include \"[^\"]*torch_")
    assert [file for file, text in SOURCES.items() if knows.search(text) and not is_binding(file)] == []


def test_there_is_one_binding_an_operator() -> None:
    assert len([file for file in SOURCES if is_binding(file)]) <= MOST_BINDINGS
    registered = [
        name
        for file in SOURCES
        if file.endswith(".cpp")
        for name in set(re.findall(r'm\.impl\("(\w+)"', SOURCES[file]))
    ]
    assert len(registered) == len(set(registered)), "an operator is registered by two files"


def is_binding(file: str) -> bool:
    return os.path.basename(file).startswith("torch_")
