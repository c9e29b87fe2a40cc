# SPDX-License-Identifier: Apache-2.0
"""README.md and docs/: figures are those of their files, links lead somewhere, commands can be given, and the README stays short."""

import json
import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from nurec_lite import compare, serve
from nurec_lite.cli.command import composed
from nurec_lite.config import VERBS
from nurec_lite.viewer.opened import with_run
from scripts import figures
from scripts.figure_table import TABLE, rows_of

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
LOGS = [ROOT / "benchmarks/LOG.md", *sorted((ROOT / "benchmarks/log").glob("*.md"))]
MORE = ("CONTRIBUTING.md", "CHANGELOG.md", "data/README.md", "kernels/README.md")
PAGES = [*figures.pages(), *(ROOT / name for name in MORE), *LOGS]
NAMED = {str(page.relative_to(ROOT)): page for page in PAGES}
TODAY = [name for name, page in NAMED.items() if page not in LOGS]  # commands in a log are those of its day
COMMAND = re.compile(r"python -m nurec_lite\.(\w+)((?: [^`\n]*)?)")
PROGRAM = re.compile(r"\b((?:benchmarks|scripts)/[\w/]+\.(?:py|sh))\b")


# ---- figures


@pytest.mark.parametrize("page", figures.pages(), ids=lambda page: page.name)
def test_figures_are_those_of_their_files(page: Path) -> None:
    """make figures would change nothing."""
    assert figures.new(page) == page.read_text()


def test_every_figure_is_quoted() -> None:
    assert not figures.idle(figures.table_of_figures(), (page.read_text() for page in figures.pages()))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(json.dumps({"psnr": 31.26, "steps": 20}))
    return tmp_path / "page.md"


def test_what_training_prints_is_that_of_its_file(page: Path) -> None:
    text = "<!-- printed: run.json -->\n```text\nold\n```\nrest"
    lines = figures.printed(page, text).splitlines()
    assert lines[:2] == text.splitlines()[:2] and lines[2].split() == ["PSNR", "31.26", "dB"]
    assert lines[-3:] == ["  ...", "```", "rest"]
    known = dict.fromkeys(("psnr", "ssim", "flip", "psnr_actors", "lidar_median_abs_m", "lidar_mean_abs_m"), 0.5)
    (page.parent / "more.json").write_text(json.dumps(known | {"steps": 20}))
    lines = figures.printed(page, text.replace("run", "more")).splitlines()
    assert len(lines) == 11 and [line.split() for line in lines[-4:-2]] == [["..."], ["Steps", "20"]]


def test_the_picture_of_the_report_is_of_the_run_that_the_readme_quotes() -> None:
    """scripts/readme_pictures.py writes the metrics of the run into the picture."""
    run = re.search(r"<!-- printed: (\S+) -->", README.read_text())
    with Image.open(ROOT / "docs/images/report.png") as picture:
        metrics = json.loads(picture.info["metrics"])
    quoted = json.loads((ROOT / str(run and run[1])).read_text())
    assert metrics["steps"] > 0 and metrics == {key: quoted.get(key) for key in metrics}


def test_a_table_of_options_gets_its_second_file_once_it_is_there(page: Path) -> None:
    text = "<!-- options: options.json quality.json -->\n\n| old |\n\nrest"
    (page.parent / "options.json").write_text(json.dumps({"rows": [{"name": "", "rung": True, "ms": 5.0}]}))
    assert "PSNR" not in figures.tables(page, text) and "old" not in figures.tables(page, text)
    (page.parent / "quality.json").write_text(json.dumps({"rows": [{"name": "", "psnr": 22.5}]}))
    assert figures.tables(page, text).splitlines()[-3].endswith("|22.50 dB|")


def test_the_readme_is_short() -> None:
    text = README.read_text()
    assert len(text.split()) <= 1400 and len(text.splitlines()) <= 220


# ---- links


def prose(page: Path) -> str:
    """The text of a page without code, since brackets there are no links."""
    return re.sub(r"^```.*?^```|^ {4}.*?$|`[^`\n]*`", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    """Targets within the repository; of figures only those whose file is there, since others say that it is not."""
    text = prose(page)
    defined = re.findall(r"^\[[\w-]+\]: (\S+)", text, re.MULTILINE)
    found = [*re.findall(r"\]\(([^)\s]+)\)", text), *(target for target in defined if (page.parent / target).exists())]
    return [target for target in found if not target.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """Anchors of the headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", NAMED)
def test_links_lead_somewhere(name: str) -> None:
    page, broken = NAMED[name], []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        known = rows_of(target) if target == TABLE else anchors(target) if target.suffix == ".md" else ()
        if not target.exists() or (anchor and anchor not in known):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("name", NAMED)
def test_labels_are_defined(name: str) -> None:
    used = set(re.findall(r"\][\[]([\w-]+)\]", prose(NAMED[name])))
    assert used <= set(re.findall(r"^\[([\w-]+)\]: ", NAMED[name].read_text(), re.MULTILINE))


def test_results_are_quoted() -> None:
    """A file in benchmarks/results that no page or figure leads to is in the way."""
    text = "".join(page.read_text() for page in (*PAGES, TABLE))
    assert not [path.name for path in (ROOT / "benchmarks/results").iterdir() if path.stem not in text]


def test_pictures_are_shown() -> None:
    text = "".join(page.read_text() for page in PAGES)
    shown = [f"{path.parent.name}/{path.name}" for path in (ROOT / "docs/images").rglob("*") if path.is_file()]
    shown += [f"{path.parent.name}/{path.name}" for path in (ROOT / "benchmarks/results").rglob("*.png")]
    assert not [name for name in shown if name not in text]


# ---- commands


def commands(page: Path) -> list[tuple[str, list[str]]]:
    """Commands and arguments of command lines that are whole."""
    found = [(verb, shlex.split(rest, comments=True)) for verb, rest in COMMAND.findall(page.read_text())]
    whole = [
        (verb, words)
        for verb, words in found
        if verb in VERBS and not re.search(r"\.\.\.|\$|^compare$", "\n".join(words), re.M)
    ]
    return [(verb, words) for verb, words in whole if words not in ([], ["--help"]) and "-m" not in words]


COMPOSED = [(name, verb, words) for name in TODAY for verb, words in commands(NAMED[name])]


@pytest.mark.parametrize(("name", "verb", "words"), COMPOSED, ids=lambda part: part if isinstance(part, str) else None)
def test_a_command_of_a_page_can_be_given(name: str, verb: str, words: list[str]) -> None:
    named = {"compare": compare.with_runs, "view": with_run, "serve": serve.with_runs}  # runs stand without a key
    assert composed(verb, named.get(verb, list)(words))


@pytest.mark.parametrize("name", TODAY)
def test_programs_that_a_page_names_exist(name: str) -> None:
    """Exceptions are examples, and commands that made a ladder."""
    text = re.sub(r"<!-- ladder:.*?:end -->", "", NAMED[name].read_text(), flags=re.DOTALL)
    named = set(PROGRAM.findall(text)) - {f"benchmarks/opt/bench_{name}.py" for name in ("X", "coarse_ssim")}
    assert not [path for path in named if not (ROOT / path).is_file()]


@pytest.mark.parametrize(
    "line", re.findall(r"^ {4}(pip install .*|make .*)$|`(make \w+)`", README.read_text(), re.MULTILINE)
)
def test_what_installs_is_there(line: tuple[str, str]) -> None:
    words = shlex.split(line[0] or line[1])
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for extra in re.findall(r"\.\[(\w+)\]", " ".join(words)):
        assert re.search(rf"^{extra} = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert "-c" not in words or (ROOT / words[words.index("-c") + 1]).is_file()
