# SPDX-License-Identifier: Apache-2.0
"""One rule for names: accepted ones, refused ones with the reason, and pairs that exclude each other."""

import pytest

from nurec_lite.base.names import clashes, label_flaw, name_flaw

FLAWS = {
    "": "printable", "x" * 65: "printable", "a\nb": "printable", "a\x1b[2J": "printable", "a\u202eb": "printable", "a\u200bb": "printable",
    "\ud800": "printable", "a\0": "printable", "a\tb": "printable", "\u2028": "printable", " a": "space", "a ": "space", "=1+1": "=",
    "+1": r"\+", "-1": "-", "@SUM(A1)": "@", "＝1": "＝", ".": "plain part", "..": "plain part", "../x": "plain part",
    "/any/x": "plain part", "a/b": "plain part", "a\\b": "plain part", "a.": "plain part", ".nurec_lite": "plain part",
    "🚗" * 64: "200 bytes",
}  # fmt: skip


@pytest.mark.parametrize("name", FLAWS)
def test_what_is_no_name(name: str) -> None:
    flaw = name_flaw(name)
    assert flaw is not None and FLAWS[name].replace("\\", "") in flaw and flaw.isprintable()


@pytest.mark.parametrize("name", [None, 5, ["a"], b"a", ("a",)])
def test_what_is_no_text(name: object) -> None:
    assert name_flaw(name) is not None and label_flaw(name) is not None


@pytest.mark.parametrize(
    "name", ["image_02", "front.left", "CAM FRONT", "é", "右前", "7", "a=b", "x-1", "a:b", "x" * 64, "0_above"]
)
def test_what_is_a_name(name: str) -> None:
    assert name_flaw(name) is None and label_flaw(name) is None


@pytest.mark.parametrize("label", ["movable_object/barrier", "Person (sitting)", "..", "vehicle.car"])
def test_a_class_is_no_part_of_a_path(label: str) -> None:
    assert label_flaw(label) is None


CLASHES = (
    ("x", "x"), ("Front", "front"), ("Straße", "STRASSE"), ("é", "e\u0301"), ("É", "e\u0301"), ("top", "top_above"), ("top", "TOP_above"),
    ("a", "a_0001"), ("a", "a_12345"), ("a", "a_t0001.230"), ("a", "a-t0001.230"), ("top", "top_above_0001"), ("top_above", "top"),
    ("top_above", "top_above_0001"),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), CLASHES)
@pytest.mark.parametrize("between", [[], ["y", "z_0001"]])
def test_two_names_of_one_file(one: str, other: str, between: list[str]) -> None:
    assert len(list(clashes([one, *between, other]))) >= 1


@pytest.mark.parametrize(
    "names", [["image_02", "image_03", "image"], ["a", "b_above"], ["a_1", "a_2", "a"], ["x_t1.5", "x"], []]
)
def test_names_that_may_coexist(names: list[str]) -> None:
    assert not list(clashes(names))
