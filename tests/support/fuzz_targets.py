# SPDX-License-Identifier: Apache-2.0
"""What scripts/fuzz.py throws at the readers: for each kind of input how one is drawn, as a list of steps that can be left out one by
one, and how it is read."""

import contextlib
import io
import os
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from kitti_drive import DRIVE, TRACKLETS, write_drive
from mutations import BINARY, TEXT, applied, overwrite, steps_of
from omegaconf import OmegaConf
from pack_mutations import BEAMS, index_of, mutate_index, packed, with_index, with_member
from pack_parts import make_sweep
from strangers import altered, small_checkpoint
from tiny_capture import tiny_capture

from nurec_lite import export
from nurec_lite.base.options import known_options, parameters_of
from nurec_lite.bounds import leaves
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.origin import recentred
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.pack.sweep import decode_sweep, encode_sweep
from nurec_lite.capture.plausible import plausible
from nurec_lite.cli.command import composed, mended
from nurec_lite.config import VERBS, Config, ExportConfig, to_config
from nurec_lite.training.checkpoint import load_checkpoint, scene_from_dict
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.start import check_same_capture, restore_generator, restore_moments

Steps = list[Any]


@dataclass(frozen=True)
class Target:
    name: str
    share: int  # of the inputs
    draw: Callable[[random.Random], Steps]
    run: Callable[[Path, Steps], None]  # in a folder of its own; returns, or raises what the reader raises


def few(rng: random.Random) -> int:
    return rng.randint(1, 4)


# ---- packs


@lru_cache(maxsize=1)
def pack_bytes() -> bytes:
    return packed()


def read_whole_pack(path: Path) -> None:
    capture = read_pack(path)
    for frame in (*capture.images, *capture.sweeps):
        frame.load()
    check_capture(recentred(plausible(capture, path.name)), path.name)


def run_pack(folder: Path, steps: Steps) -> None:
    overwrite(folder / "drive.pack", applied(pack_bytes(), steps))
    read_whole_pack(folder / "drive.pack")


def run_index(folder: Path, seeds: Steps) -> None:
    index = index_of(pack_bytes())
    for seed in seeds:
        index = mutate_index(index, random.Random(seed))
    overwrite(folder / "index.pack", with_index(pack_bytes(), index))
    read_whole_pack(folder / "index.pack")


@lru_cache(maxsize=1)
def sweep_bytes() -> bytes:
    return encode_sweep(make_sweep(50, BEAMS))


def run_sweep(folder: Path, steps: Steps) -> None:
    decode_sweep(applied(sweep_bytes(), steps), "drive.pack: sweep", BEAMS)


# ---- checkpoints


@lru_cache(maxsize=1)
def checkpoint_bytes() -> bytes:
    path = Path(os.environ["FUZZ_FOLDER"]) / "whole.pt"
    return small_checkpoint(path)


@lru_cache(maxsize=1)
def checkpoint_content() -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(io.BytesIO(checkpoint_bytes()), weights_only=True)
    return loaded


def use_checkpoint(path: Path) -> None:
    """As going on and exporting do."""
    content = load_checkpoint(path, "cpu")
    scene = scene_from_dict(content["scene"])
    check_same_capture(path, scene, tiny_capture())
    restore_moments(make_optimizer(scene, Config().lr), content["optimizer"])
    restore_generator(path, torch.Generator(), content["generator"])
    to_config(OmegaConf.merge(OmegaConf.structured(Config), content["config"]))
    export.run(ExportConfig(out=str(path.with_suffix(".ply")), checkpoint=str(path)), scene)


def run_checkpoint(folder: Path, steps: Steps) -> None:
    overwrite(folder / "bytes.pt", applied(checkpoint_bytes(), steps))
    use_checkpoint(folder / "bytes.pt")


def draw_record(rng: random.Random) -> Steps:
    return [(rng.random() < 0.7, rng.getrandbits(24), step) for step in steps_of(rng, few(rng), BINARY)]


def run_record(folder: Path, steps: Steps) -> None:
    """A record of the zip, mostly the pickle, with a CRC that is right."""
    data = checkpoint_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
    for in_pickle, number, step in steps:
        name = names[0] if in_pickle else names[number % len(names)]
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            old = archive.read(name)
        data = with_member(data, name, applied(old, [step]))
    overwrite(folder / "record.pt", data)
    use_checkpoint(folder / "record.pt")


def run_value(folder: Path, seeds: Steps) -> None:
    content = checkpoint_content()
    for seed in seeds:
        content = altered(content, random.Random(seed))
    torch.save(content, folder / "value.pt")
    use_checkpoint(folder / "value.pt")


# ---- KITTI


@lru_cache(maxsize=1)
def drive_files(folder: Path) -> dict[str, bytes]:
    root = write_drive(folder / "kitti", n_beams=6, steps=9)
    (root / DRIVE / "tracklet_labels.xml").write_text(TRACKLETS)
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*.*")) if p.is_file()}


def draw_kitti(rng: random.Random) -> Steps:
    number = rng.getrandbits(24)
    return [(number, *step) for step in steps_of(rng, few(rng), (*BINARY, *TEXT, *TEXT))]


def run_kitti(folder: Path, steps: Steps) -> None:
    files, root = drive_files(folder), folder / "kitti"
    name = list(files)[(steps[0][0] if steps else 0) % len(files)]
    overwrite(root / name, applied(files[name], [step[1:] for step in steps]))
    try:
        capture = plausible(read_kitti_raw(root), root.name)
        check_capture(recentred(capture), root.name)
        for frame in (*capture.images, *capture.sweeps):
            frame.load()
    finally:
        overwrite(root / name, files[name])


# ---- keys

WORDS = (
    *("nan", "inf", "-inf", "0", "-1", "1", "1e23", "1e300", "-1e300", "99999999999999999999999", "0.0001", "1.5", "null", "true"),
    *("''", "x", "[]", "[1]", "[1,2]", "[5,2]", "[null]", "{a:1}", "[[1]]", "${seed}", "${nowhere}", "${oc.env:HOME}", "???", "a b"),
    *("'a\\'b'", "é", "\ud800", "x" * 5000, "[1,2", "a=b", "-", "*", "glob(*)", "range(1,3)", "1,2", "0x10", "1_000", "..", "\t"),
)  # fmt: skip


@lru_cache(maxsize=8)
def keys_of(verb: str) -> tuple[str, ...]:
    known = [key for key, _ in leaves(VERBS[verb])]
    options = [f"opt.{name}.{key}" for name in known_options() for key in parameters_of(name)]
    return (
        *known,
        *options,
        "opt",
        "+opt",
        "data",
        "~data",
        "+nothing",
        "+train.nothing",
        "lr",
        "+size",
        "hydra.run.dir",
        "+opt.x.y",
    )


def draw_key(rng: random.Random) -> Steps:
    verb = rng.choice(list(VERBS))
    return [(verb, rng.choice(keys_of(verb)), rng.choice(WORDS)) for _ in range(rng.randint(1, 3))]


def run_keys(folder: Path, steps: Steps) -> None:
    """As a command line; a sentence ends it with code 2."""
    verb = steps[0][0] if steps else "train"
    arguments = [f"{key}={word}" for _, key, word in steps]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()), mended(verb):
            composed(verb, arguments)
    except SystemExit as end:
        sentence = said.getvalue()
        assert end.code == 2 and sentence.startswith("error: ") and sentence.count("\n") == 1, sentence[:300]


VALUES = (
    None,
    True,
    0,
    -1,
    1,
    2,
    10**30,
    0.5,
    float("nan"),
    float("inf"),
    -1e300,
    "",
    "x",
    "${seed}",
    [],
    [1, 2],
    ["x"],
    {},
    {"a": 1},
)


def draw_value(rng: random.Random) -> Steps:
    return [(key, rng.choice(VALUES)) for key in rng.sample(keys_of("render"), rng.randint(1, 3))]


def run_config(folder: Path, steps: Steps) -> None:
    """As a stored configuration, without Hydra's parser."""
    merged = OmegaConf.structured(VERBS["render"](checkpoint="x"))  # type: ignore[call-arg]
    for key, value in steps:
        with contextlib.suppress(Exception):  # OmegaConf itself refuses it, in the words that to_config repeats
            OmegaConf.update(merged, key.strip("+~"), value, force_add=True)
    to_config(merged)


TARGETS = (
    Target("pack bytes", 20, lambda rng: steps_of(rng, few(rng), BINARY), run_pack),
    Target("pack index", 14, lambda rng: [rng.getrandbits(62) for _ in range(rng.randint(1, 3))], run_index),
    Target("pack sweep", 14, lambda rng: steps_of(rng, few(rng), BINARY), run_sweep),
    Target("checkpoint bytes", 14, lambda rng: steps_of(rng, few(rng), BINARY), run_checkpoint),
    Target("checkpoint records", 14, draw_record, run_record),
    Target("checkpoint values", 8, lambda rng: [rng.getrandbits(62) for _ in range(rng.randint(1, 2))], run_value),
    Target("KITTI files", 8, draw_kitti, run_kitti),
    Target("keys", 1, draw_key, run_keys),
    Target("configurations", 7, draw_value, run_config),
)
