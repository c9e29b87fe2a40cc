# SPDX-License-Identifier: Apache-2.0
"""NVTX: which binding records, the package's arguments for a range, and the records of a tool."""

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from nurec_lite.base import nvtx
from nurec_lite.base.errors import ConfigError
from nurec_lite.base.nvtx import DOMAIN, PACKAGE, SETTING, STAGES, TORCH, ByPackage, ByTorch, look
from nurec_lite.base.ranges import in_span, span, switch

LISTENER = Path(__file__).resolve().parents[1] / "support/nvtx_listener.cpp"


class Domain:
    """The package's domain while a tool listens, or the package's substitute for it while none does."""

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.made: list[str] = []
        self.pushed: list[dict[str, Any]] = []
        self.popped = 0

    def get_event_attributes(self, **given: Any) -> dict[str, Any] | None:
        self.made += [given["message"]] if given else []
        return given if self.enabled else None

    def push_range(self, given: dict[str, Any]) -> None:
        self.pushed.append(given)

    def pop_range(self) -> None:
        self.popped += 1


Listen = Callable[..., Domain]


@pytest.fixture
def listen(monkeypatch: pytest.MonkeyPatch) -> Listen:
    """Puts a domain in the place of the package's."""
    package = pytest.importorskip("nvtx")
    monkeypatch.delenv(SETTING, raising=False)

    def put(enabled: bool = True) -> Domain:
        domain = Domain(enabled)
        monkeypatch.setattr(package, "get_domain", lambda name: {DOMAIN: domain}[name])
        return domain

    return put


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is not installed."""
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setattr(nvtx, "installed", lambda: False)
    nvtx._instead.cache_clear()


# The package


def test_the_package_gets_whole_paths_with_colour_and_category(listen: Listen) -> None:
    domain = listen()
    with switch(nvtx=True), span("step"), span("render_camera"), span("tile"):
        pass
    paths = ["step", "step/render_camera", "step/render_camera/tile"]
    camera = STAGES["render_camera"].colour
    assert domain.pushed == [
        {"message": path, "color": colour, "category": category}
        for path, colour, category in zip(
            paths, (STAGES["step"].colour, camera, camera), (None, "camera", "camera"), strict=True
        )
    ]
    assert domain.popped == 3


def test_what_a_tool_hears_of_a_path_is_made_once(listen: Listen) -> None:
    domain = listen()
    with switch(nvtx=True):
        for _ in range(3):
            with span("step"), span("loss"):
                pass
    assert domain.made == ["step", "step/loss"] and len(domain.pushed) == domain.popped == 6


def test_nothing_is_recorded_where_nobody_listens(listen: Listen) -> None:
    domain = listen(enabled=False)
    with switch(nvtx=True), span("name"):
        assert in_span("inner", len) is len
    assert domain.pushed == [] and domain.popped == 0


def test_every_stage_has_a_colour_of_its_own() -> None:
    colours = [known.colour for known in STAGES.values()]
    assert len(set(colours)) == len(colours)
    assert all(0xFF000000 <= colour <= 0xFFFFFFFF for colour in colours)  # opaque
    assert {known.category for known in STAGES.values()} == {None, "camera", "lidar", "host"}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("step", STAGES["step"]),
        ("step/backward/render", STAGES["backward"]),
        ("step/render_lidar/project", STAGES["render_lidar"]),
        ("step/unheard_of", STAGES["step"]),
    ],
)
def test_a_range_looks_like_its_stage(path: str, expected: nvtx.Look) -> None:
    assert look(path) == expected


def test_ranges_outside_of_the_step_have_the_colour_of_the_outermost() -> None:
    assert look("levels/voxels") == look("levels") and look("levels").category is None
    assert look("levels").colour in {known.colour for known in STAGES.values()}


# Which binding


def test_the_package_is_the_default(listen: Listen) -> None:
    listen()
    assert (nvtx.chosen(), nvtx.domain(), nvtx.surroundings()) == (PACKAGE, DOMAIN, {SETTING: PACKAGE})
    assert isinstance(nvtx.recorder(), ByPackage) and SETTING in nvtx.remedy()


def test_an_empty_setting_is_none(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    listen()
    monkeypatch.setenv(SETTING, "")
    assert nvtx.chosen() == PACKAGE


def test_the_setting_chooses_torch_s_binding(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    domain, found = listen(), list[str]()
    monkeypatch.setenv(SETTING, TORCH)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", found.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: found.append("pop"))
    assert (nvtx.domain(), nvtx.surroundings(), nvtx.remedy()) == (None, {SETTING: TORCH}, "")
    with switch(nvtx=True), span("a"), span("b"):
        pass
    assert found == ["a", "a/b", "pop", "pop"] and domain.pushed == []


def test_torch_s_binding_records_nothing_where_torch_is_built_without_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, TORCH)
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    with switch(nvtx=True):
        assert in_span("name", len) is len


@pytest.mark.usefixtures("missing")
def test_without_the_package_torch_s_binding_records_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "nurec_lite"):
        assert (nvtx.chosen(), nvtx.chosen(), nvtx.domain()) == (TORCH, TORCH, None)
    assert [record.message for record in caplog.records] == [
        "the package nvtx is not installed, so torch's binding records the ranges (pip install nvtx)"
    ]


@pytest.mark.usefixtures("missing")
def test_a_package_that_is_asked_for_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, PACKAGE)
    with (
        pytest.raises(ConfigError, match=r"not installed: pip install nvtx, or NUREC_LITE_NVTX=torch"),
        switch(nvtx=True),
    ):
        pass


def test_other_settings_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "nsys")
    with (
        pytest.raises(ConfigError, match=r"NUREC_LITE_NVTX is 'nsys', but must be package or torch"),
        switch(nvtx=True),
    ):
        pass
    with switch():  # nobody asks
        pass


def test_torch_s_own_binding_takes_paths() -> None:
    if not torch.backends.cuda.is_built():
        pytest.skip("torch has no NVTX here")
    by = ByTorch()
    by.end("a/b", by.begin("a/b"))


# A tool


def test_a_tool_hears_domain_paths_colours_and_categories(tmp_path: Path) -> None:
    """The package itself, in a process that a tool surrounds; the tool is a library, as nsys and ncu are."""
    pytest.importorskip("nvtx")
    library, heard = tmp_path / "listener.so", tmp_path / "heard.txt"
    compiler = os.environ.get("CXX") or "g++"
    subprocess.run([compiler, "-std=c++17", "-shared", "-fPIC", "-o", str(library), str(LISTENER)], check=True)
    program = """
from nurec_lite.base.ranges import span, switch
with switch(nvtx=True), span("step"):
    for name in ("render_lidar", "loss"):
        with span(name):
            pass
"""
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(library), "NVTX_HEARD": str(heard), SETTING: PACKAGE}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    step, lidar, loss = (f"{STAGES[name].colour:08X}" for name in ("step", "render_lidar", "loss"))
    assert heard.read_text().splitlines() == [
        f"push {DOMAIN} step {step} 0",
        f"category {DOMAIN} 1 lidar",
        f"push {DOMAIN} step/render_lidar {lidar} 1",
        f"pop {DOMAIN}",
        f"push {DOMAIN} step/loss {loss} 0",
        f"pop {DOMAIN}",
        f"pop {DOMAIN}",
    ]
