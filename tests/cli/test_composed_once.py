# SPDX-License-Identifier: Apache-2.0
"""A plain run composes its configuration once; where an argument may set Hydra's mode, the mode is looked for first."""

import sys
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.hydra import Hydra

from nurec_lite.base.errors import UserError
from nurec_lite.config import Config


def composed(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, Config]:
    """Number of times, and the configuration that a run gets."""
    import nurec_lite.train  # noqa: F401

    module, count, got, compose = sys.modules["nurec_lite.train"], [0], list[Config](), Hydra.compose_config

    def counted(*given: Any, **named: Any) -> Any:
        count[0] += 1
        return compose(*given, **named)

    def run(config: Config, **named: Any) -> None:
        got.append(config)
        raise UserError("enough")

    monkeypatch.setattr(Hydra, "compose_config", counted)
    monkeypatch.setattr(module, "run", run)
    monkeypatch.setattr(sys, "argv", ["nurec_lite.train", *arguments])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(SystemExit):
        module.work(arguments)
    return count[0], got[0]


def test_a_plain_run_composes_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = [f"out={tmp_path}", "+recipe=realtime", "train.steps=7"]
    before = Hydra.get_mode
    times, config = composed(given, monkeypatch)
    assert times == 1 and Hydra.get_mode is before
    assert config.train.steps == 7 and config.out == str(tmp_path)
    again, same = composed([*given, "hydra.mode=RUN"], monkeypatch)
    assert again == 2 and same == config
