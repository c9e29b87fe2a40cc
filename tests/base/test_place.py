# SPDX-License-Identifier: Apache-2.0
"""The place of a process among ranks, from the environment; sentences for incomplete environments."""

import pytest
import torch
from ranked import surroundings

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.place import Place, place_of
from nurec_lite.base.ranks import own_device
from nurec_lite.cli.command import _check_ranks

TWO = surroundings(1, 2, 1234)


@pytest.mark.parametrize("environ", [{}, {"WORLD_SIZE": "1", "RANK": "0"}])
def test_a_process_without_others_is_alone(environ: dict[str, str]) -> None:
    assert place_of(environ) == Place() and place_of(environ).first


def test_a_rank_knows_its_place() -> None:
    assert place_of(TWO) == Place(1, 2, 1, 2) and not place_of(TWO).first


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_half_an_environment_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"WORLD_SIZE=2 .*{name} is not set.*torchrun --nproc-per-node=2"):
        place_of({key: value for key, value in TWO.items() if key != name})


@pytest.mark.parametrize(
    "changed", [{"RANK": "2"}, {"LOCAL_RANK": "x"}, {"WORLD_SIZE": "-2"}, {"LOCAL_WORLD_SIZE": "3"}]
)
def test_places_that_cannot_be_are_refused(changed: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="torchrun"):
        place_of(TWO | changed)


@pytest.fixture
def second_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TWO.items():
        monkeypatch.setenv(name, value)


def test_each_rank_takes_its_own_gpu(second_of_two: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert own_device("auto") == own_device("cuda") == "cuda:1" and own_device("cpu") == "cpu"
    with pytest.raises(ConfigError, match="device=cuda:0 names one device for 2 ranks"):
        own_device("cuda:0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ConfigError, match="2 ranks on a host with 1 GPUs"):
        own_device("auto")


def test_other_verbs_and_several_runs_are_refused(second_of_two: None) -> None:
    with pytest.raises(ConfigError, match="evaluate runs in one process"):
        _check_ranks("evaluate", [])
    with pytest.raises(ConfigError, match="-m starts several runs"):
        _check_ranks("train", ["-m"])
    _check_ranks("train", [])
