# SPDX-License-Identifier: Apache-2.0
"""docs/contract.md has an option that works as its example; the pictures of docs/architecture.md show every folder and every stage."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from omegaconf import OmegaConf
from tiny_capture import tiny_config, tiny_state

from nurec_lite.backends import build_stages
from nurec_lite.base import options
from nurec_lite.base.errors import OptionError
from nurec_lite.base.paths import PACKAGE
from nurec_lite.training.losses import image_loss
from nurec_lite.training.stages import RECORD_OF
from nurec_lite.training.step import step

DOCS = PACKAGE.parent / "docs"
PAGE = (DOCS / "contract.md").read_text()
ONCE = {"frames", "begin_frames", "group_rays", "render_views"}  # stages that a step does not call


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's option, where an option is looked for."""
    module = ModuleType("nurec_lite.opt.coarse_ssim")
    exec(block("python"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    (tmp_path / "opt").mkdir()
    (tmp_path / "opt/coarse_ssim.yaml").write_text(block("yaml"))
    monkeypatch.setattr(options, "resource", lambda name: tmp_path / Path(name).relative_to("conf"))
    return module


def trained(given: dict) -> dict[str, torch.Tensor]:
    stages, state = build_stages(given), tiny_state(tiny_config(steps=2))
    for _ in range(2):
        step(stages, state)
        state.step += 1
    return {name: p.detach() for name, p in state.scene.parameters().items()}


def test_the_example_trains_with_the_parameters_of_its_file(example: ModuleType) -> None:
    parameters = OmegaConf.to_container(OmegaConf.create(block("yaml")))
    plain, coarse = trained({}), trained(parameters)  # type: ignore[arg-type]
    assert not torch.equal(plain["sh0"], coarse["sh0"])
    assert all(p.isfinite().all() for p in coarse.values())


def test_the_example_is_the_plain_loss_at_stride_1(example: ModuleType) -> None:
    rendered, target = torch.rand(2, 13, 17, 3, dtype=torch.float64)
    assert torch.equal(example.image_loss(rendered, target, 0.2, 1), image_loss(rendered, target, 0.2))


def test_the_example_says_what_is_wrong(example: ModuleType) -> None:
    with pytest.raises(OptionError, match="stride is 0, but must be at least 1"):
        build_stages({"coarse_ssim": {"stride": 0}})
    with pytest.raises(OptionError, match="its parameters are stride"):
        build_stages({"coarse_ssim": {"width": 2}})


def test_the_picture_of_the_step_shows_every_stage() -> None:
    picture = (DOCS / "images/step.svg").read_text()
    stages = {*RECORD_OF, *("fork", "run", "join")} - ONCE
    assert {name for name in stages if not re.search(rf"\b{name}\b", picture)} == set()


def test_the_map_shows_every_folder() -> None:
    picture = (DOCS / "images/house.svg").read_text()
    folders = {p.stem for p in PACKAGE.iterdir() if p.is_dir() and (p / "__init__.py").exists()} | {
        "readers",
        "backends",
        "config",
    }
    assert {name for name in folders if f">{name}<" not in picture} == set()
