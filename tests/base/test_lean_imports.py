# SPDX-License-Identifier: Apache-2.0
"""Garbage is collected again once a command's modules are imported."""

import gc

from nurec_lite.base.lean_imports import begin_imports, end_imports


def test_garbage_is_collected_again() -> None:
    begin_imports()
    assert not gc.isenabled()
    end_imports()
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    assert gc.isenabled() and frozen > 1000
