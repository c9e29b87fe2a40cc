# SPDX-License-Identifier: Apache-2.0
"""Values as users write them, for every command: texts like numbers stay texts, paths hold any character, lists need no brackets."""

import os
import re
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import ListConfig, OmegaConf
from shell import FAST, Shell, assert_mendable

from nurec_lite.base.errors import ConfigError
from nurec_lite.base.key_values import quoted
from nurec_lite.bounds import BOUNDS, Text, check_values, leaves
from nurec_lite.cli.arguments import check_groups
from nurec_lite.cli.command import composed, load_run, named_checkpoint
from nurec_lite.cli.resume import resumed
from nurec_lite.cli.words import hydra_arguments, split, unquoted
from nurec_lite.config import PATHS, VERBS, Config, to_config, to_dict, to_yaml
from nurec_lite.training.checkpoint import load_checkpoint

WORDS = [
    "2011_09_26", "1e3", "1.10", "0009", "1_2", "0x10", "1.", ".5", "-1", "+7", "inf", "nan", "true", "Off", "yes", "2026-11-26", "12:30",
]  # fmt: skip
SIGNS = [
    "Straße", "a(1)", "(", "a b", " a", "a,b", "a=b", "it's", 'say "so"', "$5", "a#b", "100%", "[a]", "{a}", "a\\b", "a\\", "a:b", "~",
    "日本", "a;b&c|d*?!`@^<>", "-x", "'", '"', "a\tb", "choice", "str(1", "../a", "'a','b'",
]  # fmt: skip


def keys_of(*types: Any) -> list[str]:
    """Keys of all commands that may hold any text, or lists of such."""
    found = {key for cls in VERBS.values() for key, hint in leaves(cls) if hint in types}
    return sorted(key for key in found if isinstance(BOUNDS[key], Text))


TEXTS, LISTS = keys_of(str, str | None), keys_of(list[str], list[str] | None)
PARSER = OverridesParser.create()
NAMED = (
    "out", "checkpoint", "csv", "data.mapping", "data.masks", "edits", "path", "sensor", "patterns", "runs", "ego_masks",
)  # fmt: skip
NEEDED = {verb: ["checkpoint=x"] if "checkpoint" in dict(leaves(cls)) else [] for verb, cls in VERBS.items()}


def at(config: Any, key: str) -> Any:
    for part in key.split("."):
        config = getattr(config, part)
    return config


def of_verb(keys: list[str], verb: str) -> list[str]:
    """Keys of training, or those that the command has besides."""
    return [key for key in keys if verb_of(key) == verb]


@cache
def verb_of(key: str) -> str:
    """Returns the first command that knows the key."""
    return next(verb for verb, cls in VERBS.items() if key in dict(leaves(cls)))


def values(verb: str, keys: list[str], value: str) -> list[Any]:
    """Values in the verb's configuration."""
    config = composed(verb, [*NEEDED[verb], *(f"{key}={value}" for key in keys)])
    return [at(config, key) for key in keys]


def read(verb: str, keys: list[str], value: str) -> list[Any]:
    """Values that Hydra's parser reads, without composing, which takes a tenth of a second."""
    return [
        PARSER.parse_override(argument).value()
        for argument in hydra_arguments(verb, [f"{key}={value}" for key in keys])
    ]


# ---- texts


@pytest.mark.parametrize("value", WORDS + SIGNS)
def test_a_text_is_what_was_written(value: str) -> None:
    for verb in VERBS:
        keys = of_verb(TEXTS, verb)
        assert read(verb, keys, value) == [value] * len(keys), verb


@pytest.mark.parametrize("key", of_verb(TEXTS, "train"))
def test_training_is_configured_with_it(key: str) -> None:
    assert values("train", [key], "1e3") == ["1e3"]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("value", ["2011_09_26", "1e3", "runs/Straße (1)/a,b"])
def test_every_verb_takes_any_folder(verb: str, value: str) -> None:
    assert values(verb, ["out", "data.root"], value) == [value, value]


@pytest.mark.parametrize("value", [*WORDS, "it's", "[a", "a(1)"])
def test_entries_of_lists_are_what_was_written(value: str) -> None:
    for verb in VERBS:
        keys = of_verb(LISTS, verb)
        for given in (f"[{value}]", value):
            assert read(verb, keys, given) == [[value]] * len(keys), verb
        for given in (f"[{value},b]", f"{value},b", f"[ {value} , b ]"):
            assert read(verb, keys, given) == [[value, "b"]] * len(keys), verb


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("out='a b'", "a b"), ('out="1_0"', "1_0"), (r"out='it\'s'", "it's"), ("out=${data.name}", "street"),
        ("out=r/${data.name}-1", "r/street-1"),
        ("out=str(12)", "12"), ("++out=1_0", "1_0"), ("out=null", "null"), ("data.root=null", None), ("data.root=NULL", None),
        ("train.resume=null", None), ("data.cameras=null", None), ("data.cameras=[]", []), ("data.cameras=['a,b',c]", ["a,b", "c"]),
    ],
)  # fmt: skip
def test_what_hydra_understands_it_goes_on_to_understand(argument: str, expected: Any) -> None:
    assert at(composed("train", [argument]), argument.lstrip("+").partition("=")[0]) == expected


def test_numbers_and_flags_are_no_texts() -> None:
    config = composed(
        "train", ["seed=1_0", "train.seconds=1e3", "train.evaluate=false", "lr.means=.5", "train.steps=null"]
    )
    assert (config.seed, config.train.seconds, config.train.evaluate, config.lr.means) == (10, 1000.0, False, 0.5)


# ---- where they come back


def test_a_stored_configuration_holds_the_same() -> None:
    given = [
        f"data.cameras=[{','.join(map(quoted, WORDS + SIGNS))}]",
        "data.date=2011_09_26",
        "data.drive=0009",
        "data.name=1e3",
    ]
    config = composed("train", given)
    again = to_config(OmegaConf.merge(OmegaConf.structured(Config), OmegaConf.create(to_yaml(config))))
    assert again == config and again.data.cameras == WORDS + SIGNS
    assert (again.data.date, again.data.drive, again.data.name) == ("2011_09_26", "0009", "1e3")


def test_going_on_keeps_them(quick: Path) -> None:
    content = load_checkpoint(quick, "cpu")
    content["config"]["data"] |= {"date": "2011_09_26", "drive": "1e3", "cameras": WORDS + SIGNS}
    found = resumed(Config(out="x"), quick, content, ["data.drive=1e3", "train.steps=9"])
    assert (found.data.date, found.data.drive, found.data.cameras) == ("2011_09_26", "1e3", WORDS + SIGNS)
    again = composed("evaluate", [f"checkpoint={quick}"], content).data
    assert (again.date, again.drive, again.cameras) == ("2011_09_26", "1e3", WORDS + SIGNS)


@pytest.mark.parametrize(
    "folder", ["1e3", "2011_09_26", "a b", "Straße", "a(1)", "it's", "a,b", "a=b", "$5", 'say "so"', "a\\"]
)
def test_a_checkpoint_lies_anywhere(quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str) -> None:
    """A bare name, a text in quotes, and a path below the home folder name it."""
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "checkpoint.pt").hardlink_to(quick)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = f"{folder}/checkpoint.pt"
    for given in (path, quoted(path), f"~/{path}", quoted(f"~/{path}")):
        assert named_checkpoint(["checkpoint=a", f"checkpoint={given}"]).samefile(quick)
    config, _ = load_run("export", [f"checkpoint=~/{path}", "node=1_2"])
    assert config.node == "1_2" and Path(config.checkpoint).samefile(quick)


def job(*arguments: str) -> str:
    """The text that `--cfg job` prints, from the outside."""
    line = [sys.executable, "-m", "nurec_lite.train", *arguments, "--cfg", "job"]
    return subprocess.run(line, capture_output=True, text=True, check=True, timeout=600).stdout


def test_a_folder_is_named_by_other_keys(
    shell: Shell, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["data=pack", f"data.root={original}", "data.name=1_0", "out=${data.name}-a,b", *FAST, "train.steps=0"]
    ended = shell("train", *given)
    assert ended.code == 0 and (tmp_path / "1_0-a,b/config.yaml").is_file(), ended.error


def test_cfg_job_shows_them() -> None:
    shown = OmegaConf.create(
        job("out=2011_09_26", "data.date=1e3", "data.root=a(1)/Straße, x", "data.cameras=1_0,b", "data.frames=0,20")
    )
    assert (shown.out, shown.data.date, shown.data.root) == ("2011_09_26", "1e3", "a(1)/Straße, x")
    assert shown.data.cameras == ["1_0", "b"] and shown.data.frames == [0, 20]


# ---- several runs


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("out=2011_09_26,1e3", 'out="2011_09_26","1e3"'),
        ("out=choice(1_0,1.10)", 'out="1_0","1.10"'),
        ("out='a,b',c", "out='a,b',\"c\""),
        ("data.root=a(1,b)/x", 'data.root="a(1,b)/x"'),
        ("data.root=a(1,b", 'data.root="a(1","b"'),
        ("data.date=null,0009", 'data.date=null,"0009"'),
        ("data.cameras=a,b", 'data.cameras=["a"],["b"]'),
        ("data.cameras=[a,b],[1_0]", 'data.cameras=["a","b"],["1_0"]'),
        ("data.frames=[0,20],[20,40]", "data.frames=[0,20],[20,40]"),
        ("seed=1,2", "seed=1,2"),
        ("seed=range(1,3)", "seed=range(1,3)"),
        ("+opt=[],[workers],all", "+opt=[],[workers],all"),
        ("hydra.sweep.dir=a", "hydra.sweep.dir=a"),
    ],
)
def test_with_m_commas_are_between_runs(argument: str, expected: str) -> None:
    assert hydra_arguments("train", ["-m", argument]) == ["-m", expected]
    assert hydra_arguments("train", hydra_arguments("train", ["-m", argument])) == ["-m", expected], (
        "hydra_arguments twice is hydra_arguments once"
    )


def test_jobs_of_several_get_them(
    shell: Shell, original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = shell(
        "train",
        "-m",
        "data=pack",
        f"data.root={original}",
        "out=2011_09_26,1e3",
        "data.date=1_0",
        *FAST,
        "train.steps=0",
    )
    assert ended.code == 0, ended.error
    for folder in ("2011_09_26", "1e3"):
        (found,) = tmp_path.glob(f"{folder}/*/config.yaml")
        assert OmegaConf.load(found).data.date == "1_0"


# ---- paths


@pytest.mark.parametrize("argument", ["+recipe=realtime,best", "+size=large,", "data=pack,kitti_raw"])
def test_a_run_takes_one_of_a_group(argument: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{argument} holds several values, but a run takes one")):
        check_groups([argument])
    check_groups(["-m", argument])
    check_groups(["+opt=[fused_adam,no_sync]"])


def test_the_source_of_tracks_and_poses_needs_no_last_word() -> None:
    given = ["data.tracks=none", "data.poses=lidar", "data.poses.file=null", "data.tracks={sizes: lwh}"]
    assert hydra_arguments("train", given) == [
        'data.tracks.source="none"', 'data.poses.source="lidar"', "data.poses.file=null", "data.tracks={sizes: lwh}",
    ]  # fmt: skip


@pytest.mark.parametrize("argument", ["model=3", "train=a,b", "lr=1e-3"])
def test_a_group_of_keys_takes_no_value(argument: str) -> None:
    key = argument.partition("=")[0]
    with pytest.raises(ConfigError, match=f"{key} is a group of keys; give one of them, as in {key}\\.[a-z_]+=VALUE"):
        hydra_arguments("train", [argument])


@pytest.mark.parametrize("key", PATHS)
def test_the_home_folder_is_expanded(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("HOME", "/srv/else")
    verb = VERBS[verb_of(key)]
    config = OmegaConf.structured(verb(**({"checkpoint": "x"} if "checkpoint" in dict(leaves(verb)) else {})))
    listed = isinstance(at(config, key), ListConfig)
    for given, expected in (
        ("~/x y.pack", "/srv/else/x y.pack"),
        ("~", "/srv/else"),
        ("a/~/b", "a/~/b"),
        ("./~", "./~"),
    ):
        OmegaConf.update(config, key, [given] if listed else given)
        assert at(to_config(config), key) == ([expected] if listed else expected)


def test_every_key_of_a_file_is_a_path() -> None:
    """A key of a file that is added later joins the list."""
    keys = {key for cls in VERBS.values() for key, _ in leaves(cls)}
    assert (
        {key for key in keys if key.endswith((".file", "root", "resume")) or key.startswith("tls_") or key in NAMED}
        == set(PATHS)
        <= keys
    )


@pytest.mark.parametrize("argument", ["out=", "out=''", 'out=""', "data.root=", "data.poses.file=''", "train.resume="])
def test_a_path_is_not_empty(argument: str) -> None:
    key = argument.partition("=")[0]
    with pytest.raises(
        ConfigError,
        match=rf"^{re.escape(key)} is empty; name a file or folder, as in {re.escape(key)}=PATH, or leave it out$",
    ):
        composed("train", [argument])


# ---- lists of numbers


@pytest.mark.parametrize("given", ["0,20", "[0,20]", "[ 0, 20 ]", "0, 20"])
def test_numbers_need_no_brackets(given: str) -> None:
    assert composed("train", [f"data.frames={given}"]).data.frames == [0, 20]
    assert read("render", ["times", "shift"], given) == [[0, 20], [0, 20]]


# ---- unreadable arguments


@pytest.mark.parametrize(
    ("argument", "pattern"),
    [
        ("seed=1,2", r"^error: seed=1,2 holds several values, but a run takes one seed; give one, or put -m before train's arguments$"),
        ("ops=choice(native,reference)", r"^error: .* holds several values, but a run takes one ops; "),
        ("seed=a(1", r"^error: seed is 'a\(1', but must be a whole number; correct this key$"),
        ("train.seconds=~3", r"^error: train\.seconds is '~3', but must be a number or null; correct this key$"),
        ("train.evaluate=(", r"^error: train\.evaluate is '\(', but must be true or false; correct this key$"),
        ("data.frames=[0,20", r"^error: data\.frames is .*, but must be a list of "),
        ("data.frames=20", r"^error: data\.frames takes the first frame and the one after the last, as in \[0,20\]"),
        ("data.rooot=~/x", r"^error: key 'data\.rooot' is unknown; did you mean data\.root\?$"),
        ("a b=(", r"^error: key 'a b' is unknown; "),
        ("data=~/x.pack", r"^error: data=~/x\.pack: there is no '~/x\.pack'; .*waymo; a file or folder is data\.root=~/x\.pack$"),
        ("data=street.pack", r"there is argoverse2, bundled, .*, waymo; a file or folder is data\.root=street\.pack$"),
        ("+size=~/x", r"^error: \+size=~/x: there is no '~/x'; there is large$"),
        ("street.pack", r"^error: 'street\.pack' is not of the form KEY=VALUE; python -m nurec_lite\.train --help lists the keys$"),
        ("data.root:3", r"^error: 'data\.root:3' is not of the form KEY=VALUE; "),
        ("~/x.pack", r"^error: '~/x\.pack' is not of the form KEY=VALUE; "),
        ("two words", r"^error: 'two words' is not of the form KEY=VALUE; "),
        ("opt.workers.count=~3", r"""cannot be read; put quotes around the value: 'opt\.workers\.count="~3"'$"""),
        ("hydra.run.dir=~/x", r"""cannot be read; put quotes around the value: 'hydra\.run\.dir="~/x"'$"""),
        (os.fsdecode(b"out=caf\xe9"), r"^error: out is .*, but must be at most 4096 characters of Unicode"),
    ],
)  # fmt: skip
def test_one_sentence_says_what_helps(shell: Shell, argument: str, pattern: str) -> None:
    ended = shell("train", *FAST, argument)
    assert_mendable(ended, pattern)
    assert "Exception" not in ended.error


@pytest.mark.parametrize("verb", ["evaluate", "render", "export"])
@pytest.mark.parametrize("argument", ["seed=(", "data.rooot=~/x", "street pack", "data=~/x"])
def test_so_do_the_verbs_after_training(shell: Shell, quick: Path, verb: str, argument: str) -> None:
    assert_mendable(shell(verb, f"checkpoint={quick}", argument), r"^error: ")


@pytest.mark.parametrize(
    "arguments", [["tool=compare"], ["tool='compare'", "out=x"], ["device=cpu", "compare", "a", "b"]]
)
def test_compare_is_a_word_of_its_own(shell: Shell, arguments: list[str]) -> None:
    pattern = r"^error: compare is a word of its own: python -m nurec_lite\.profile compare FOLDER FOLDER$"
    assert_mendable(shell("profile", *arguments), pattern)


def test_a_key_without_a_range_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(BOUNDS, "loss.tie")
    with pytest.raises(AssertionError, match=r"^loss\.tie has no range: add it to BOUNDS of nurec_lite/bounds\.py$"):
        check_values(to_dict(Config()), [Config])


# ---- the parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", [""]), ("a", ["a"]), ("a,b", ["a", "b"]), ("[a,b],c", ["[a,b]", "c"]), ("'a,b',c", ["'a,b'", "c"]), ("it's,b", ["it's", "b"]),
     ("a(1,b", ["a(1", "b"]), ("a,", ["a", ""]), (r"'it\'s,',b", [r"'it\'s,'", "b"]), ("x)y,(z", ["x)y", "(z"]),
     (r'"a\\",b', [r'"a\\"', "b"]), ("""["a","b]"],['c,']""", ["""["a","b]"]""", "['c,']"])],
)  # fmt: skip
def test_parts_stand_between_commas(text: str, expected: list[str]) -> None:
    assert split(text) == expected


@pytest.mark.parametrize("text", WORDS + SIGNS)
def test_quotes_come_off_again(text: str) -> None:
    assert unquoted(quoted(text)) == text
    assert shlex.split(shlex.quote(quoted(text))) == [quoted(text)]
    assert PARSER.parse_override(f"data.name={quoted(text)}").value() == text
