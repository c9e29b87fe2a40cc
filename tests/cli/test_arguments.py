# SPDX-License-Identifier: Apache-2.0
"""Arguments as a new user writes them: groups of files, budgets, and a list of commands where there is none."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from shell import FAST, Shell, Train, assert_mendable

from nurec_lite.__main__ import main as verbs
from nurec_lite.base.paths import PACKAGE, resource
from nurec_lite.cli.arguments import choices, with_budget
from nurec_lite.cli.command import composed
from nurec_lite.config import VERBS
from nurec_lite.training.checkpoint import load_checkpoint

# ---- groups of files under conf/

CAPTURES = ", ".join(sorted(path.stem for path in (resource("conf") / "data").glob("*.yaml")))


@pytest.mark.parametrize(
    ("argument", "pattern"),
    [
        ("opt=workers", r"^error: opt=workers: write \+opt=workers; opt is one of all, .*, workers$"),
        ("opt=[workers,pinned]", r"^error: opt=.*: write \+opt=\[workers,pinned\]; "),
        ("opt=5", r"^error: opt=5: write \+opt=NAME; opt is one of all, "),
        ("+opt=workers,pinned", r"^error: .*: write \+opt=\[workers,pinned\]; opt is one of"),
        ("+opt=wrokers", r"^error: option 'wrokers' is unknown; the options are .*, workers, and all$"),
        ("+opt=", r"^error: option '' is unknown; the options are .*, workers, and all$"),
        ("opt.workers.count=2", r"name the option too, as in \+opt=workers$"),
        ("size=large", r"^error: size=large: write \+size=large; size is one of large$"),
        ("+size=larg", r"^error: \+size=larg: there is no 'larg'; there is large$"),
        (
            "data=cityscapes",
            rf"^error: data=cityscapes: there is no 'cityscapes'; there is {CAPTURES}$",
        ),
        (
            "+data=pack",
            rf"^error: \+data=pack: write data=pack; data is one of {CAPTURES}$",
        ),
        (
            "data.kind=pack",
            r"^error: data\.kind=pack is half a choice: write data=pack, which sets all keys of that kind$",
        ),
        ("data.kind=film", r"^error: data\.kind=film is half a choice: write data=NAME, "),
        ("sweep=ladder", r"^error: sweep=ladder: write \+sweep=ladder; "),
        ("hydra/launcher=slrm", r"^error: hydra/launcher=slrm: there is no 'slrm'; there is basic, .*slurm"),
    ],
)
def test_a_group_names_its_choices(shell: Shell, tmp_path: Path, argument: str, pattern: str) -> None:
    ended = shell("train", f"out={tmp_path / 'out'}", *FAST, argument)
    assert_mendable(ended, pattern)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["evaluate", "render", "export"])
def test_so_do_the_verbs_after_training(shell: Shell, quick: Path, verb: str) -> None:
    assert_mendable(
        shell(verb, f"checkpoint={quick}", "data=cityscapes"),
        rf"there is {CAPTURES}$",
    )
    assert_mendable(shell(verb, f"checkpoint={quick}", "opt=workers"), r"write \+opt=workers; ")


def test_every_size_composes() -> None:
    """tests/cli/test_config.py composes every capture and every option."""
    for name in choices("size"):
        composed("train", [f"+size={name}"])


# ---- the budget


def job(shell: Shell, *arguments: str) -> Any:
    """The text that `--cfg job` prints."""
    ended = shell("train", *arguments, "--cfg", "job")
    assert ended.code == 0, ended.error
    return yaml.safe_load(ended.out)


@pytest.mark.parametrize(
    ("given", "steps", "seconds"),
    [
        ([], None, 150),
        (["train.steps=7"], 7, None),
        (["train.seconds=9"], None, 9),
        (["train.steps=7", "train.seconds=9"], 7, 9),
        (["train.steps=null"], None, 150),
    ],
)
@pytest.mark.parametrize("verb", ["train", "profile"])
def test_steps_alone_replace_the_seconds(
    shell: Shell, given: list[str], steps: int | None, seconds: int | None, verb: str
) -> None:
    config = composed(verb, given)
    assert (config.train.steps, config.train.seconds) == (steps, seconds)
    found = job(shell, *given)["train"]
    assert (found["steps"], found["seconds"]) == (steps, seconds)


def test_the_budget_stands_where_hydra_looks_for_arguments() -> None:
    assert with_budget(["train.steps=7", "--cfg", "job"]) == ["train.seconds=null", "train.steps=7", "--cfg", "job"]
    assert with_budget(["--cfg", "job", "train.seconds=30"]) == ["--cfg", "job", "train.steps=null", "train.seconds=30"]


def test_seconds_alone_replace_the_steps_of_a_recipe() -> None:
    train = composed("train", ["+recipe=realtime", "train.seconds=30"]).train
    assert (train.steps, train.seconds) == (None, 30)


def test_a_run_that_goes_on_follows_the_same_rule(train: Train, shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "run"
    line = ["data=pack", f"data.root={train.pack}", f"out={out}", "train.resume=auto"]
    fast = [argument for argument in FAST if not argument.startswith(("train.steps=", "train.seconds="))]

    def budget(*given: str) -> tuple[Any, Any]:
        ended = shell("train", *line, *fast, *given)
        assert ended.code == 0, ended.error
        stored = load_checkpoint(out / "checkpoint.pt", "cpu")["config"]["train"]
        return stored["steps"], stored["seconds"]

    assert budget("train.steps=1") == (1, None)
    assert budget("train.steps=2", "train.seconds=600") == (2, 600)
    assert budget("train.steps=3") == (3, None)


# ---- options that can do nothing here


@pytest.mark.parametrize(
    "options", ["split_backward", "[split_backward,launch_bounds]", "warp_cull", "pinned", "prefetch"]
)
def test_an_option_of_a_gpu_is_refused_on_a_cpu(shell: Shell, tmp_path: Path, options: str) -> None:
    ended = shell("train", *FAST, "ops=native", f"out={tmp_path / 'out'}", f"+opt={options}")
    assert_mendable(ended, r"error: option '\w+' cannot run here: it .* GPU.*; use device=cuda$")
    assert "option " not in ended.out and not (tmp_path / "out").exists()


def test_all_leaves_out_what_costs_time_on_a_cpu(train: Train, tmp_path: Path) -> None:
    ended = train("train.steps=1", f"out={tmp_path / 'out'}", "+opt=all")
    assert ended.code == 0 and re.findall(r"^option (\w+)", ended.out, re.MULTILINE) == ["fused_interp", "collect_once"]


# ---- a capture that is named from another folder


@pytest.fixture
def relative(quick: Path, tmp_path: Path) -> Path:
    """A checkpoint that names its pack by a relative path; the pack lies in the folder `done`."""
    content = load_checkpoint(quick, "cpu")
    content["config"]["data"]["root"] = "tiny.pack"
    (tmp_path / "there").mkdir()
    (tmp_path / "there/tiny.pack").write_bytes((quick.parent / "tiny.pack").read_bytes())
    torch.save(content, tmp_path / "checkpoint.pt")
    return tmp_path / "checkpoint.pt"


@pytest.mark.parametrize("verb", ["evaluate", "render", "train"])
def test_a_capture_that_is_not_here_is_asked_for(
    shell: Shell, relative: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    (relative.parent / "here").mkdir()
    monkeypatch.chdir(relative.parent / "here")
    named = [f"checkpoint={relative}"] if verb != "train" else [f"train.resume={relative}", "train.steps=2", "out=on"]
    ended = shell(verb, *named, "device=cpu")
    assert_mendable(
        ended,
        r"checkpoint\.pt was made with data\.root=tiny\.pack, which does not exist in .*/here; give data\.root=PATH",
    )
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("given", ["data.root=../there/tiny.pack", None])
def test_it_is_found_where_it_is_named_and_where_it_was(
    shell: Shell, relative: Path, monkeypatch: pytest.MonkeyPatch, given: str | None
) -> None:
    folder = relative.parent / ("here" if given else "there")
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(folder)
    ended = shell("evaluate", f"checkpoint={relative}", "device=cpu", *([given] if given else []))
    assert ended.code == 0, ended.error


# ---- packages that can be installed


def test_every_hint_names_a_package_of_an_index() -> None:
    """The project itself is on none: an extra of it can be installed from a checkout alone."""
    extras = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    lines = [*extras["dependencies"], *(line for extra in extras["optional-dependencies"].values() for line in extra)]
    sources = [path.read_text() for path in PACKAGE.rglob("*.py")]
    hints = [hint.split() for text in sources for hint in re.findall(r"pip install ([\w.'\[\] -]+)", text)]
    assert len(hints) >= 4
    assert {hint[0].strip("'") for hint in hints} <= {re.split(r"[<>=]", line)[0] for line in lines}


# ---- --help, and no command at all


def flat(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict) or not tree:
        return {prefix: tree}
    return {key: leaf for name, sub in tree.items() for key, leaf in flat(sub, f"{prefix}.{name}".strip(".")).items()}


def numbered(value: Any) -> Any:
    """YAML reads 2e-05 as a text."""
    return float(value) if isinstance(value, str) and re.fullmatch(r"\de-\d+", value) else value


def test_help_shows_the_defaults_that_a_run_would_have(shell: Shell) -> None:
    rows = shell("train", "--help").out.split("Keys, with their defaults:\n\n")[1].splitlines()
    shown = dict(row.split("  ")[1].split("=", 1) for row in rows)
    given = flat(job(shell))
    assert set(shown) == set(given)
    read = {key: text if key == "out" else numbered(yaml.safe_load(text)) for key, text in shown.items()}
    assert read == {key: numbered(value) for key, value in given.items()}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb != "compare"])  # which takes no group
def test_help_shows_the_groups_with_their_choices(shell: Shell, verb: str) -> None:
    groups = shell(verb, "--help").out.split("Groups, with their choices:")[1].split("Keys, with")[0]
    assert ("data=NAME", ", ".join(choices("data"))) == tuple(
        text for text in ("data=NAME", ", ".join(choices("data"))) if text in groups
    )
    if verb == "train":
        assert "+size=NAME" in groups and set(choices("opt")) <= set(re.findall(r"\w+", groups))


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "nurec_lite", *arguments]
    return subprocess.run(line, cwd=PACKAGE.parent, capture_output=True, text=True)


def test_without_a_verb_they_are_listed() -> None:
    found = ended()
    assert found.returncode == 0 and found.stderr == ""
    assert re.findall(r"python -m nurec_lite\.(\w+) +\w", found.stdout) == list(VERBS)


def test_a_verb_that_is_none_is_reported_with_the_list() -> None:
    found = ended("trian", "data=pack")
    assert found.returncode == 2 and found.stderr.startswith("error: 'trian' is no command; did you mean train?\n")
    assert all(f"nurec_lite.{verb}" in found.stderr for verb in VERBS)


def test_a_verb_after_the_package_is_that_verb(shell: Shell) -> None:
    found = ended("train", "train.steps=7", "--cfg", "job")
    assert found.returncode == 0 and yaml.safe_load(found.stdout)["train"]["steps"] == 7
    shell.patch.setattr(sys, "argv", [])  # which `commands` sets
    with pytest.raises(SystemExit, match="2"):
        verbs(["pack", "data=pack"])
    assert shell.capsys.readouterr().err.startswith("error: data.root is missing")
