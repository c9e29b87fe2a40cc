# SPDX-License-Identifier: Apache-2.0
"""Inputs of scripts/fuzz.py for the readers: for each kind of input how one is drawn, as a list of steps that can be left out one by
one, and how it is read."""

import contextlib
import io
import os
import random
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import fuzz_drives
import fuzz_ncore
import torch
from kitti_drive import DRIVE, TRACKLETS, write_drive
from mutations import BINARY, TEXT, applied, overwrite, steps_of
from omegaconf import OmegaConf
from pack_mutations import BEAMS, index_of, mutate_index, packed, with_index, with_member
from pack_parts import make_capture, make_sweep
from strange_files import STRANGE, contents
from strangers import altered, small_checkpoint
from tiny_capture import tiny_capture

from nurec_lite import export
from nurec_lite.base.files import write_text
from nurec_lite.base.folders import LOCK, MARKER, discard, take
from nurec_lite.base.lock import locked
from nurec_lite.base.options import known_options, parameters_of
from nurec_lite.bounds import leaves
from nurec_lite.capture.check import check_capture
from nurec_lite.capture.kitti.raw import read_kitti_raw
from nurec_lite.capture.origin import recentred
from nurec_lite.capture.pack import read_pack
from nurec_lite.capture.pack.sweep import decode_sweep, encode_sweep
from nurec_lite.capture.plausible import in_time, plausible
from nurec_lite.cli.command import composed, mended
from nurec_lite.config import VERBS, Config, DataConfig, ExportConfig, to_config
from nurec_lite.training.checkpoint import load_checkpoint, scene_from_dict
from nurec_lite.training.known_capture import check_known_capture
from nurec_lite.training.optim import make_optimizer
from nurec_lite.training.start import restore_generator, restore_moments

Steps = list[Any]


@dataclass(frozen=True)
class Target:
    name: str
    share: int  # of the inputs
    draw: Callable[[random.Random], Steps]
    run: Callable[[Path, Steps], None]  # in a folder of its own; returns, or raises the reader's error


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
    check_capture(recentred(plausible(in_time(capture, path.name), path.name)), path.name)


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
    """Uses it as going on and exporting do."""
    content = load_checkpoint(path, "cpu")
    scene = scene_from_dict(content["scene"])
    check_known_capture(path, content, tiny_capture(), DataConfig())
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
        capture = plausible(in_time(read_kitti_raw(root), root.name), root.name)
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
    """Runs them as a command line; a sentence ends it with code 2."""
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
    """Runs them as a stored configuration, without Hydra's parser."""
    merged = OmegaConf.structured(VERBS["render"](checkpoint="x"))  # type: ignore[call-arg]
    for key, value in steps:
        with contextlib.suppress(Exception):  # OmegaConf itself refuses it, in the words that to_config repeats
            OmegaConf.update(merged, key.strip("+~"), value, force_add=True)
    to_config(merged)


# ---- names and folders

SIGNS = "ab.-_=+@/\\ \0\n\x1b\u202e\u200bé🚗%:*\ud800"
WHOLE = (
    "",
    ".",
    "..",
    "front",
    "FRONT",
    "top_above",
    "front_0001",
    "top",
    "../x",
    "/abs",
    "=1",
    "scene",
    "7",
    "x" * 65,
)


def draw_names(rng: random.Random) -> Steps:
    """Pairs of a thing to rename and its new name."""
    places = ("camera", "other camera", "lidar", "track", "class", "capture")
    drawn = ("".join(rng.choice(SIGNS) for _ in range(rng.randint(1, 5))) for _ in places)
    return [
        (place, rng.choice((name, rng.choice(WHOLE))))
        for place, name in zip(rng.sample(places, few(rng)), drawn, strict=False)
    ]


def run_names(folder: Path, steps: Steps) -> None:
    """Names that are taken give files of different names, each in the folder itself."""
    names = dict(steps)
    capture = make_capture()
    sensors = [names.get("camera", "front"), names.get("other camera", "back"), names.get("lidar", "top")]
    tracks = replace(
        capture.tracks,
        ids=(names.get("track", "7"), "a"),
        classes=(names.get("class", "Car"), "Tram"),
    )
    cameras = tuple(replace(camera, name=name) for camera, name in zip(capture.cameras, sensors, strict=False))
    lidars = tuple(replace(lidar, name=sensors[2]) for lidar in capture.lidars)
    odd = replace(
        capture, name=names.get("capture", "drive"), cameras=cameras, lidars=lidars, images=(), tracks=tracks,
        sweeps=tuple(replace(frame, sensor=sensors[2]) for frame in capture.sweeps),
    )  # fmt: skip
    check_capture(odd, "drive.pack")
    files = [f"{name}{end}.png".casefold() for name in sensors for end in ("_0001", "_t0001.230")]
    files += [f"{sensors[2]}_above{end}.png".casefold() for end in ("_0001", "_t0001.230")]
    assert len(set(files)) == len(files), files
    assert all((folder / name).parent == folder and len(name.encode()) < 256 for name in files), files


KINDS = ("file", "folder", "link", "dangling link", "hidden", "picture", "pipe")


def draw_folder(rng: random.Random) -> Steps:
    """Content of a folder: a kind and a name; a marker or none."""
    names = (*STRANGE, MARKER, LOCK, "report.html", "x", "pictures", ".x.nurec_lite-1.tmp")
    return [(rng.choice(KINDS), rng.choice(names), rng.random() < 0.2) for _ in range(few(rng))]


def run_folder(folder: Path, steps: Steps) -> None:
    """No command changes a byte of a stranger's."""
    with TemporaryDirectory(dir=folder) as name:
        out, precious = Path(name) / "out", Path(name) / "precious"
        out.mkdir()
        precious.write_text("mine")
        for kind, at, ours in steps:
            _stand(out / at, kind, precious)
            if ours and not (out / MARKER).is_symlink() and not (out / MARKER).exists():
                (out / MARKER).write_text("nurec_lite 1 render\n../precious\n/etc/passwd\n")
        before = contents(Path(name))
        try:
            with locked(take(out, "render", ("report.html", "pictures/")).folder):
                write_text(out / "report.html", "ours")
                write_text(out / "pictures/ours_0001.png", "ours")
            discard([out / at for _, at, _ in steps] + [precious])
        finally:
            after = contents(Path(name))
            changed = {at for at, data in before.items() if after.get(at) != data} - {f"out/{MARKER}"}
            assert not changed, changed


def _stand(path: Path, kind: str, precious: Path) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "folder":
            path.mkdir()
        elif kind in ("link", "dangling link"):
            path.symlink_to(precious if kind == "link" else "nowhere")
        elif kind == "pipe":
            os.mkfifo(path)
        elif not os.path.lexists(path):
            path.write_text("strange")


TARGETS = (
    Target("pack bytes", 20, lambda rng: steps_of(rng, few(rng), BINARY), run_pack),
    Target("pack index", 14, lambda rng: [rng.getrandbits(62) for _ in range(rng.randint(1, 3))], run_index),
    Target("pack sweep", 14, lambda rng: steps_of(rng, few(rng), BINARY), run_sweep),
    Target("checkpoint bytes", 14, lambda rng: steps_of(rng, few(rng), BINARY), run_checkpoint),
    Target("checkpoint records", 14, draw_record, run_record),
    Target("checkpoint values", 8, lambda rng: [rng.getrandbits(62) for _ in range(rng.randint(1, 2))], run_value),
    Target("KITTI files", 8, draw_kitti, run_kitti),
    Target("NCore metadata", 6, fuzz_ncore.draw, fuzz_ncore.run),
    *(Target(f"{name} files", 1, fuzz_drives.draw, partial(fuzz_drives.run, name)) for name in fuzz_drives.DRIVES),
    Target("keys", 1, draw_key, run_keys),
    Target("configurations", 7, draw_value, run_config),
    Target("names", 5, draw_names, run_names),
    Target("folders", 5, draw_folder, run_folder),
)
