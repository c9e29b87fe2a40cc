# SPDX-License-Identifier: Apache-2.0
"""Running means of a run: figures wait on the device until they are read, and their values do not depend on the moment."""

import math

import pytest
import torch

from nurec_lite.base.progress import Bar
from nurec_lite.training.history import READ_EVERY, Figures, History, Row


def fill(history: History, n: int, seconds_a_step: float) -> list[Row | None]:
    """Steps 1 to n; the mean square error falls as 1 / step, the range error is the step's number."""
    return [
        history.add(k, k * seconds_a_step, 10 * k, Figures.of({"range": torch.tensor(float(k))}, torch.tensor(1 / k)))
        for k in range(1, n + 1)
    ]


def test_figures_are_read_now_and_then_and_the_first_at_once() -> None:
    shown = fill(History(), 40, READ_EVERY / 8)
    assert [k for k, row in enumerate(shown, 1) if row is not None] == [1, 9, 17, 25, 33]


def test_running_means_by_hand() -> None:
    history = History()
    fill(history, 3, 1e-3)
    row = history.read()
    first = 1.0
    second = 2 / 12 * first + 10 / 12 / 2  # keep = step / (step + 10)
    third = 3 / 13 * second + 10 / 13 / 3
    assert row is not None and row["step"] == 3 and row["gaussians"] == 30
    assert row["psnr"] == pytest.approx(-10 * math.log10(third), abs=1e-5)
    assert row["range"] == pytest.approx(3 / 13 * (2 / 12 + 20 / 12) + 30 / 13, abs=1e-5)


def test_rows_do_not_depend_on_when_they_are_read() -> None:
    lazy, eager = History(), History()
    fill(lazy, 60, 0.11)
    lazy.read()
    for k in range(1, 61):
        eager.add(k, k * 0.11, 10 * k, Figures.of({"range": torch.tensor(float(k))}, torch.tensor(1 / k)))
        eager.read()
    assert len(lazy.rows) > 10 and lazy.rows == eager.rows


def test_listeners_get_every_row_once_and_in_order() -> None:
    heard: list[float] = []
    history = History(listeners=(lambda row: heard.append(row["step"]),))
    fill(history, 60, 0.11)
    history.read()
    assert heard == [row["step"] for row in history.rows] and history.read() is None


def test_steps_without_some_term() -> None:
    history = History()
    history.add(1, 0.0, 5, Figures.of({"range": torch.tensor(2.0)}, torch.tensor(0.5)))
    history.add(2, 0.001, 5, Figures.of({}, torch.tensor(0.5)))
    row = history.read()
    assert row is not None and row["range"] == 2.0 and row["psnr"] == pytest.approx(-10 * math.log10(0.5), abs=1e-5)


def test_without_images_there_is_no_psnr_to_show() -> None:
    history, bar = History(), Bar(steps=3, seconds=None)
    row = history.add(1, 0.0, 5, Figures.of({"range": torch.tensor(2.0)}, None))
    assert row is not None and "psnr" not in row
    bar.show(row)
    assert bar.texts == ("2.00 m, 5", "range 2.00 m, 5 Gaussians")
    history.add(2, 0.001, 5, Figures.of({}, torch.tensor(0.1)))
    bar.show(history.read())
    assert bar.texts == ("10.00 dB, 2.00 m, 5", "PSNR 10.00 dB, range 2.00 m, 5 Gaussians")
    bar.close()


def test_nothing_new_is_none() -> None:
    assert History().read() is None
