# SPDX-License-Identifier: Apache-2.0
"""The pages of options: their contents come from files and are up to date, and code that is gone is an error."""

from pathlib import Path

import pytest

from nurec_lite.base.errors import UserError
from scripts.option_pages import measured, option, pages
from scripts.option_pages.excerpts import excerpt, kernels_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "step.cu"
    file.write_text(
        "int call() { return taken(1); }\n\n// Doubles.\ntemplate <int N>\n__global__ void __launch_bounds__(32, at(2))\n"
        "    taken_kernel(int* a) {\n    if (N) { a[0] *= 2; }\n}\n\nint taken(int a) {\n    int b = a;\n    return b;\n}\n"
    )
    return file


def test_pictures_are_those_of_their_figures() -> None:
    """make figures would draw the same ones; each is small."""
    for path, text in pages.pictures().items():
        assert path.read_text() == text
        assert len(text.encode()) < 15_000


def test_a_definition_is_cut_out_by_its_name(source: Path) -> None:
    assert excerpt(source, "taken").text == "int taken(int a) {\n    int b = a;\n    return b;\n}"
    assert excerpt(source, "taken_kernel").text.splitlines()[0] == "template <int N>"
    assert excerpt(source, "taken@int b..return").text == "int b = a;\nreturn b;"


def test_a_docstring_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "step.py"
    file.write_text('class Step:\n    def run(self) -> int:\n        """Runs."""\n        return 1\n')
    assert excerpt(file, "Step.run").text == "def run(self) -> int:\n    return 1"


@pytest.mark.parametrize("name", ["gone", "taken@float..return", "taken@int b..gone"])
def test_code_that_is_gone_is_an_error(source: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"a page shows .*step\.cu.*; name what"):
        excerpt(source, name)


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a page shows code of gone\.py"):
        excerpt(tmp_path / "gone.py", "step")


def test_kernels_of_a_file_are_found(source: Path) -> None:
    assert kernels_of(source) == ["taken_kernel"]


def test_an_option_is_compared_with_what_it_requires() -> None:
    """tile_cull requires warp_cull, which was measured alone; cuda_graph requires three, which were not measured together."""
    rows = [row for row in measured.read(measured.OPTIONS)["rows"] if not row["rung"]]
    of = {row["name"]: row["gpu_ms"] for row in rows}
    found = measured.pair_alone("tile_cull", "gpu")
    assert found is not None and found.before == of["warp_cull"]
    assert measured.pair_alone("cuda_graph", "gpu") == measured.Pair(
        measured.rungs()[0]["gpu_ms"], of["cuda_graph"], "GPU", from_none=True
    )


def test_a_rung_is_compared_with_the_one_before() -> None:
    before, after = measured.rung("tile_cull") or ({}, {})
    assert (before["name"], after["name"]) == ("warp_cull", "tile_cull")
    assert measured.rung("pinned") is None


@pytest.mark.parametrize("spec", ["no label", "a=all_h200:no_such_kernel"])
def test_launches_that_a_profile_lacks_are_an_error(spec: str) -> None:
    with pytest.raises(UserError, match=f"'{spec}'"):
        measured.launches(spec)


def test_an_option_that_was_not_measured_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option that somebody adds without a GPU does so."""
    rows = {"rows": [row for row in measured.read(measured.OPTIONS)["rows"] if row["name"] != "tile_cull"]}
    monkeypatch.setattr(measured, "read", lambda file: rows)
    assert measured.pair_alone("tile_cull", "gpu") is None and measured.rung("tile_cull") is None
    assert measured.step_table("tile_cull") == "not measured"


@pytest.mark.parametrize("words", ["", "shelf=attic gauge=gpu", "shelf=lab gauge=miles"])
def test_facts_that_are_wrong_name_those_there_are(words: str) -> None:
    with pytest.raises(
        UserError, match=r"docs/options/x\.md has (shelf|gauge)=.*; take (post, all, lab|gpu, step, feed)"
    ):
        option._arguments("x", words)


@pytest.mark.parametrize(
    "place", ["gone.json:a", "fused_adam_h200.json:rows/99/ms/median", "fused_adam_h200.json:rows"]
)
def test_a_figure_that_is_not_there_is_an_error(place: str) -> None:
    with pytest.raises(UserError, match="which is not there"):
        option.stated(f"step|{place}|{place}")
