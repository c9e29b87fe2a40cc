# SPDX-License-Identifier: Apache-2.0
"""A checkpoint that a stranger altered in any way is refused with a sentence or makes a scene that every command can take."""

import random
from pathlib import Path

import pytest
import torch
from strangers import altered, save
from tiny_capture import tiny_capture, tiny_state

from nurec_lite.config import Config, DataConfig
from nurec_lite.training.baseline import reference_stages
from nurec_lite.training.checkpoint import CheckpointError, load_checkpoint, scene_from_dict
from nurec_lite.training.known_capture import check_known_capture
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.schema_values import SchemaError, check_names
from nurec_lite.training.start import restore_moments
from nurec_lite.training.step import step


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "checkpoint.pt"
    state, stages = tiny_state(), reference_stages()
    step(stages, state)
    save(state, path)
    return path


def test_what_training_leaves_is_taken(whole: Path) -> None:
    assert load_checkpoint(whole, "cpu")["counters"]["step"] == 1


def test_a_name_that_is_a_tensor_is_refused_on_one_line() -> None:
    with pytest.raises(SchemaError, match=r"^capture must be names, but tensor") as refused:
        check_names((torch.full((4, 3), 0.1),), "capture")
    assert str(refused.value).isprintable()


def test_what_a_stranger_leaves_is_refused_or_whole(whole: Path, tmp_path: Path) -> None:
    content, path, refused = torch.load(whole, weights_only=True), tmp_path / "altered.pt", 0
    for seed in range(120):
        torch.save(altered(content, random.Random(seed)), path)
        try:
            found = load_checkpoint(path, "cpu")
            scene = scene_from_dict(found["scene"])
            check_known_capture(path, found, tiny_capture(), DataConfig())
        except CheckpointError as error:
            assert "altered.pt" in str(error) and str(error).isprintable() and len(str(error)) < 600
            refused += 1
            continue
        restore_moments(make_optimizer(scene, Config().lr), found["optimizer"])
    assert refused > 40
