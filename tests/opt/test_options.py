# SPDX-License-Identifier: Apache-2.0
"""Options are found, checked, expanded and applied."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from nurec_lite.backends import base_stages, build_stages, check_stages
from nurec_lite.base import options
from nurec_lite.base.errors import OptionError
from nurec_lite.base.options import known_options, parameters_of
from nurec_lite.base.paths import resource
from nurec_lite.config import Config, to_config
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.stages import Stages

Add = Callable[..., ModuleType]


@pytest.fixture
def applied() -> list[tuple[str, dict[str, Any]]]:
    """Calls of `apply` of the fake options, in order."""
    return []


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: list[tuple[str, dict[str, Any]]]) -> Add:
    """Adds a fake option: a module in nurec_lite.opt and its file in a conf/opt of the test's own."""
    folder = tmp_path / "opt"
    folder.mkdir()
    monkeypatch.setattr(options, "resource", lambda name: tmp_path / Path(name).relative_to("conf"))

    def make(
        name: str,
        *,
        kind: str | None = "exact",
        requires: tuple[str, ...] = (),
        reason: str | None = None,
        swaps: tuple[str, ...] = (),
        **parameters: Any,
    ) -> ModuleType:
        def apply(stages: Stages, **given: Any) -> Stages:
            applied.append((name, given))
            return stages.swap(name, **dict.fromkeys(swaps, print))

        module = ModuleType(f"nurec_lite.opt.{name}")
        module.__dict__.update(REQUIRES=requires, unavailable=lambda stages: reason, apply=apply)
        if kind is not None:
            module.__dict__["CLASS"] = kind
        monkeypatch.setitem(sys.modules, module.__name__, module)
        OmegaConf.save(OmegaConf.create({name: parameters or None}), folder / f"{name}.yaml")
        return module

    return make


def composed(*overrides: str) -> Config:
    with initialize_config_dir(str(resource("conf")), version_base="1.3"):
        return to_config(compose("train", overrides=list(overrides)))


# Names, requirements, classes


def test_without_options_the_stages_are_the_baseline() -> None:
    assert build_stages({}) == reference_stages()


def test_the_project_s_own_options_are_known() -> None:
    assert "workers" in known_options() and "all" not in known_options()


def test_an_unknown_name_is_an_error_that_lists_the_known_ones(add: Add) -> None:
    add("one")
    add("two")
    with pytest.raises(OptionError, match=r"'three' is unknown; the options are one, two"):
        build_stages({"one": {}, "three": {}})


def test_options_are_applied_in_the_order_given(add: Add, applied: list) -> None:
    add("one", swaps=("tile",))
    add("two", swaps=("learn",))
    stages = build_stages({"two": {}, "one": {}})
    assert [name for name, _ in applied] == ["two", "one"]
    assert stages.changes.claims == {"learn": "two", "tile": "one"}


def test_options_that_claim_one_stage_are_an_error_that_names_both(add: Add) -> None:
    add("one", swaps=("tile",))
    add("two", swaps=("tile",))
    with pytest.raises(OptionError, match=r"'two' and 'one' both replace the stage 'tile'"):
        build_stages({"two": {}, "one": {}})


def test_a_missing_requirement_is_an_error_that_says_what_to_write(add: Add, applied: list) -> None:
    add("base")
    add("needy", requires=("base",))
    with pytest.raises(OptionError, match=r"'needy' requires 'base'; use \+opt=\[base,needy\]"):
        build_stages({"needy": {}})
    assert applied == []
    build_stages({"base": {}, "needy": {}})
    assert [name for name, _ in applied] == ["base", "needy"]


def test_an_option_that_cannot_run_here_says_why_before_any_is_applied(add: Add, applied: list) -> None:
    add("fine")
    add("grounded", reason="it needs a moon")
    with pytest.raises(OptionError, match=r"'grounded' cannot run here: it needs a moon"):
        build_stages({"fine": {}, "grounded": {}})
    assert applied == []


@pytest.mark.parametrize("kind", ["faster", None])
def test_an_option_declares_one_of_the_classes(add: Add, kind: str | None) -> None:
    add("odd", kind=kind)
    with pytest.raises((AssertionError, AttributeError)):
        build_stages({"odd": {}})


@pytest.mark.parametrize("kind", ["exact", "close", "quality"])
def test_every_class_may_be_given_by_name(add: Add, applied: list, kind: str) -> None:
    add("one", kind=kind)
    build_stages({"one": {}})
    assert applied == [("one", {})]


# all


def test_all_expands_in_its_own_order_with_the_parameters_of_the_files(add: Add, applied: list) -> None:
    add("one", size=3)
    add("two")
    add("unlisted")
    build_stages({"all": {"cpu": ["two", "one"]}})
    assert applied == [("two", {}), ("one", {"size": 3})]


def test_all_leaves_out_what_cannot_run_and_says_so(add: Add, applied: list, caplog: pytest.LogCaptureFixture) -> None:
    add("grounded", reason="it needs a moon")
    add("fine")
    add("needy", requires=("grounded",))
    with caplog.at_level(logging.INFO):
        build_stages({"all": {"cpu": ["grounded", "fine", "needy"]}})
    assert [name for name, _ in applied] == ["fine"]
    assert "leaves out grounded: it needs a moon" in caplog.text
    assert "leaves out needy: it requires grounded" in caplog.text


def test_others_come_after_all_and_its_own_may_have_other_parameters(add: Add, applied: list) -> None:
    add("one", size=3)
    add("two")
    add("bold", kind="quality", requires=("two",))
    build_stages({"bold": {"strength": 2}, "one": {"size": 7}, "all": {"cpu": ["two", "one"]}})
    assert applied == [("two", {}), ("one", {"size": 7}), ("bold", {"strength": 2})]


def test_all_is_another_list_on_another_kind_of_machine(add: Add, applied: list) -> None:
    add("one")
    add("two")
    build_stages({"all": {"cpu": ["one"], "cuda": ["two"]}}, reference_stages("cuda"))
    assert [name for name, _ in applied] == ["two"]


def test_all_refuses_options_that_change_quality(add: Add) -> None:
    add("bold", kind="quality")
    with pytest.raises(OptionError, match=r"lists 'bold', which is of class quality"):
        build_stages({"all": {"cpu": ["bold"]}})


def test_all_refuses_unknown_names(add: Add) -> None:
    add("one")
    with pytest.raises(OptionError, match="'gone' is unknown"):
        build_stages({"all": {"cpu": ["gone"]}})


def test_the_project_s_own_all_can_be_built() -> None:
    build_stages(composed("+opt=all").opt).close()


# From the command line


def test_parameters_come_from_the_file_and_the_command_line() -> None:
    own = OmegaConf.load(resource("conf/opt/workers.yaml"))
    assert composed("+opt=workers").opt == own == {"workers": parameters_of("workers")}
    changed = composed("+opt=workers", "opt.workers.count=3").opt
    assert changed == {"workers": parameters_of("workers") | {"count": 3}}


def test_a_file_without_parameters_gives_none(add: Add, applied: list) -> None:
    add("bare")
    assert parameters_of("bare") == {}
    build_stages({"bare": None})  # type: ignore[dict-item]
    assert applied == [("bare", {})]


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")])
def test_the_command_line_keeps_its_order(add: Add, tmp_path: Path, order: tuple[str, str]) -> None:
    add("one", size=1)
    add("two", size=2)
    config = composed(f"hydra.searchpath=[file://{tmp_path}]", f"+opt=[{','.join(order)}]")
    assert list(config.opt) == list(order)


def test_all_on_the_command_line_is_its_list_and_others_may_join_it() -> None:
    assert list(composed("+opt=all").opt) == ["all"]
    config = composed("+opt=[all,batch]", "opt.batch.images=3")
    assert list(config.opt) == ["all", "batch"]
    stages = build_stages(config.opt)
    assert stages.changes.claims["frames"] == "batch" and stages.changes.claims["collect"] == "fused_interp"
    stages.close()


def test_an_unknown_parameter_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(HydraException, match="nonsense"):
        composed("+opt=workers", "opt.workers.nonsense=3")
    with pytest.raises(OptionError, match=r"'workers': .*'nonsense'; its parameters are count, ahead"):
        build_stages(composed("+opt=workers", "+opt.workers.nonsense=3").opt)


def test_all_leaves_out_what_needs_compiled_kernels(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are left out with ops=reference, since nobody asked for them by name."""
    listed = {"all": {"cpu": ["collect_once", "fused_interp", "no_sync", "split_backward", "launch_bounds"]}}
    caplog.set_level("INFO")
    stages = build_stages(listed, reference_stages())
    assert set(stages.changes.claims.values()) == {"collect_once", "fused_interp"}
    assert "+opt=all leaves out split_backward: it changes compiled kernels" in caplog.text


@pytest.mark.parametrize("ops", ["native", "reference"])
@pytest.mark.parametrize(
    "names", [*((name,) for name in (*known_options(), "all")), ("all", "cuda_graph"), ("no_sync", "compile")]
)
def test_options_are_refused_before_a_capture_is_read_as_they_are_after(ops: str, names: tuple[str, ...]) -> None:
    """On a CPU. Nothing is compiled or applied."""
    device, chosen = torch.device("cpu"), {name: parameters_of(name) for name in names}
    said: list[str] = []
    for check in (
        lambda: check_stages(ops, device, "own", chosen),
        lambda: build_stages(chosen, base_stages(ops, device)).close(),
    ):
        try:
            check()
            said.append("")
        except OptionError as error:
            said.append(str(error))
    assert said[0] == said[1]
