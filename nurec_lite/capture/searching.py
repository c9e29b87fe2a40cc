# SPDX-License-Identifier: Apache-2.0
"""Processes that look for poses and for moving objects. A command starts them before it reads a capture."""

from nurec_lite.base.processes import Kind
from nurec_lite.base.waiting import begin, end

POSER = Kind("the process that estimates poses", replaced=0, patience=600, parents=True)
SEARCHER = Kind("the process that searches the capture", replaced=0, patience=600, parents=True)


def begin_search() -> None:
    """Starts both processes. While they wait they import their modules, which all others would wait for."""
    begin(POSER, _load_poses)
    begin(SEARCHER, _load_search)


def end_search() -> None:
    """Ends those that the capture did not need."""
    end(POSER)
    end(SEARCHER)


def _load_poses() -> None:
    import scipy.sparse.linalg  # noqa: F401
    import small_gicp  # noqa: F401

    import nurec_lite.capture.odometry.choose  # noqa: F401


def _load_search() -> None:
    import scipy.ndimage
    import scipy.optimize
    import scipy.sparse.csgraph
    import scipy.spatial  # noqa: F401

    import nurec_lite.capture.tracking.found  # noqa: F401
