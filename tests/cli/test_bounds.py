# SPDX-License-Identifier: Apache-2.0
"""Every key has a range, and the command line refuses values outside with a sentence that names the range."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from shell import FAST, Shell, assert_mendable

from nurec_lite.base.options import known_options, parameters_of
from nurec_lite.base.paths import resource
from nurec_lite.bounds import (
    BOUNDS,
    Between,
    BetweenOrAuto,
    BoundError,
    Flag,
    OneOf,
    Text,
    check_options,
    check_values,
    leaves,
)
from nurec_lite.config import VERBS, Config

KEYS = {key: hint for cls in VERBS.values() for key, hint in leaves(cls)}
PARAMETERS = [f"opt.{name}.{key}" for name in known_options() for key in parameters_of(name)]


@pytest.mark.parametrize("key", [*KEYS, *PARAMETERS])
def test_every_key_has_a_range(key: str) -> None:
    assert isinstance(BOUNDS[key], Between | Flag | OneOf | Text)


def test_no_range_is_of_no_key() -> None:
    assert set(BOUNDS) == {*KEYS, *PARAMETERS}


@pytest.mark.parametrize("key", KEYS)
def test_ranges_are_of_the_type_of_their_key(key: str) -> None:
    kinds = {
        Between: ("int", "float"),
        BetweenOrAuto: ("int | str", "int | float | str"),
        Flag: ("bool",),
        OneOf: ("str",),
        Text: ("str",),
    }[type(BOUNDS[key])]
    assert any(kind in str(KEYS[key]) for kind in kinds)


@pytest.mark.parametrize("file", sorted(str(p) for p in resource("conf").glob("*/*.yaml") if p.parent.name != "opt"))
def test_files_choose_within_the_ranges(file: str) -> None:
    content = OmegaConf.to_container(OmegaConf.load(file))
    assert isinstance(content, dict)
    known = {f.split(".")[0] for f in KEYS}
    mine = {key: value for key, value in content.items() if key in known and isinstance(value, dict)}
    check_values(asdict(Config()), [Config])
    check_values(mine, [Config])


@pytest.mark.parametrize("name", known_options())
def test_options_choose_within_the_ranges(name: str) -> None:
    check_options({name: parameters_of(name)})


FORBIDDEN: list[tuple[str, list[str], str]] = [
    ("train", ["train.seconds=nan"], r"train\.seconds is nan, but must lie between 0 and 1e\+09"),
    ("train", ["train.seconds=inf"], r"train\.seconds is inf, but must lie between"),
    ("train", ["train.steps=-1"], r"train\.steps is -1, but must lie between 0 and 1000000000"),
    ("train", ["seed=1e23"], r"seed is '1e23', but must be a whole number"),
    ("train", ["seed=100000000000000000000000"], r"seed is a number of 77 bits, but must lie between 0 and 4294967295"),
    ("train", ["seed=-1"], r"seed is -1, but must lie between"),
    ("train", ["lr.means=-1"], r"lr\.means is -1\.0, but must lie between 0 and"),
    ("train", ["lr.means=1e40"], r"lr\.means is 1e\+40, but must lie between 0 and 1e\+39"),
    ("train", ["lr.sh0=nan"], r"lr\.sh0 is nan, but must lie between"),
    ("train", ["lr.decay=0"], r"lr\.decay is 0\.0, but must be above 0 and at most 1"),
    (
        "train",
        ["train.coarse=1"],
        r"train\.coarse is 1, but must be auto or at least 0 and below 1; correct this key",
    ),
    (
        "train",
        ["train.coarse=-0.1"],
        r"train\.coarse is -0\.1, but must be auto or at least 0 and below 1; correct this key",
    ),
    ("train", ["density.every=0"], r"density\.every is 0, but must lie between 1 and"),
    (
        "train",
        ["density.cap=10"],
        r"density\.cap is 10, but model\.points, .* ask for 400 to start with; raise the cap or lower",
    ),
    ("train", ["model.sky_height=0"], r"model\.sky_height is 0, but must lie between 1 and"),
    ("train", ["model.thickness=0"], r"model\.thickness is 0\.0, but must be above 0"),
    ("train", ["loss.ssim=2"], r"loss\.ssim is 2\.0, but must lie between 0 and 1"),
    ("train", ["ops=gpu"], r"ops is 'gpu', but must be one of native, reference"),
    ("train", ["data.split=third"], r"data\.split is 'third', but must be one of interp, side"),
    ("train", ["data.frames=[5,2]"], r"data\.frames is \[5, 2\], but the first frame must lie before the last"),
    (
        "train",
        ["data.seconds=[5,2]"],
        r"data\.seconds takes the first second and the one after the last, as in \[2\.5,10\]",
    ),
    ("train", ["data.frames=[-5,2]"], r"data\.frames holds -5, but must lie between 0"),
    ("train", ["+opt=workers", "opt.workers.count=-1"], r"opt\.workers\.count is -1, but must lie between 0 and 256"),
    ("train", ["+opt=workers", "opt.workers.count=1.5"], r"opt\.workers\.count is 1\.5, but must be a whole number"),
    ("train", ["+opt=no_sync", "opt.no_sync.slack=nan"], r"opt\.no_sync\.slack is nan, but must lie between 1 and 100"),
    ("train", ["+opt=workers", "opt.workers=5"], r"opt\.workers is 5, but must hold the option's parameters"),
    (
        "train",
        ["+opt=workers", "+opt.workers.speed=5"],
        r"option 'workers': .*speed.*; its parameters are count, ahead",
    ),
    ("train", ["+opt.fast.speed=5"], r"option 'fast' is unknown; the options are"),
    ("train", ["opt=5"], r"opt=5: write \+opt=NAME; opt is one of all, "),
    ("train", ["+opt=5"], r"Config group override must be a string or a list"),
    ("train", ["data=" + "x" * 5000], r"File name too long"),  # found by scripts/fuzz.py
    ("train", ["+pace=5"], r"key 'pace' is unknown"),
    ("train", ["+train.stepz=5"], r"key 'train\.stepz' is unknown; did you mean train\.steps\?"),
    ("train", ["+data.poses.fil=x"], r"key 'data\.poses\.fil' is unknown; did you mean data\.poses\.file\?"),
    (
        "train",
        [r"data.name=\${oc.env:HOME}"],
        r"data\.name is '\$\{oc\.env:HOME\}', but must be at most 4096 characters",
    ),
    ("render", ["shift=1e300,0,0"], r"shift holds 1e\+300, but must lie between -1e\+06 and 1e\+06"),
    ("render", ["fps=0.0001"], r"fps is 0\.0001, but must lie between 0\.01 and 1000"),
    ("render", ["times=nan"], r"times holds nan, but must lie between"),
    ("render", ["move=000:1e300:0:0:0"], r"move holds '000:1e300:0:0:0', but takes"),
    ("render", ["+speed=3"], r"key 'speed' is unknown; did you mean seed\?"),
    ("evaluate", ["subset=half"], r"subset is 'half', but must be one of test, train, all"),
    ("export", ["time=inf"], r"time is inf, but must lie between"),
    ("pack", ["quality=101"], r"quality is 101, but must lie between 1 and 100"),
    ("profile", ["tool=perf"], r"tool is 'perf', but must be one of nsys, ncu, torch"),
    ("profile", ["warmup=-1"], r"warmup is -1, but must lie between"),
]


@pytest.mark.parametrize(
    ("verb", "given", "pattern"), FORBIDDEN, ids=[" ".join(given)[:60] for _, given, _ in FORBIDDEN]
)
def test_a_key_out_of_its_range(
    shell: Shell, quick: Path, tmp_path: Path, verb: str, given: list[str], pattern: str
) -> None:
    own = {"train": FAST, "profile": FAST, "pack": []}.get(verb, [f"checkpoint={quick}"])
    own = [a for a in own if a.partition("=")[0] not in {g.partition("=")[0] for g in given}]
    out = tmp_path / ("out.ply" if verb == "export" else "out")
    assert_mendable(shell(verb, *own, f"out={out}", *given), pattern)
    assert not out.exists()


@pytest.mark.parametrize(
    "options", [5, {"a": 5}, {"workers": {"count": [1]}}, {3: None}, {"workers": {"count": None}}, {"x": {"y": float("nan")}}]
)  # fmt: skip
def test_options_that_are_none(options: Any) -> None:
    with pytest.raises(BoundError):
        check_options(options)
