# SPDX-License-Identifier: Apache-2.0
"""Returns of rain, snow and dust: they move for certain, alone or in the boxes of others.

Method: drops have no neighbours at a distance that grows with the range (Charron et al., "De-noising of lidar point clouds corrupted by
snowfall", 2018), here in the range image. On a dry day a few edges and twigs look like drops, and nothing is left out.
"""

import numpy as np
from numpy.typing import NDArray

from nurec_lite.capture.tracking.returns import Floats, Grid, Returns

NEAR, NEAR_RATE = 0.5, 0.02  # largest difference of ranges between neighbours: metres, and metres a metre
COLUMNS = 2  # of a range image to either side; one row
FEWEST = 2  # neighbours: some drops have one by chance
FAR = 30.0  # metres: drops return no beam from further
WET = 0.0022  # of the returns so near have no neighbours: 0.0015 at most on a dry day, 0.0033 and more in a drizzle


def are_drops(
    returns: Returns,  # of a sweep
    grid: Grid,
    index: NDArray[np.int64],  # [n] of its returns: those that are looked at
    moving: NDArray[np.bool_],  # [n] other sweeps see past them
) -> NDArray[np.bool_]:  # [n]
    image = np.full(grid.rows * grid.columns, np.inf, np.float32)
    np.minimum.at(image, returns.cells, returns.ranges)
    neighbours = _neighbours(image.reshape(grid.rows, grid.columns)).ravel()[returns.cells[index]]
    doubtful = moving & (returns.ranges[index] < FAR)
    wet = np.count_nonzero(doubtful & (neighbours == 0)) > WET * np.count_nonzero(returns.ranges < FAR)
    return doubtful & (neighbours < FEWEST) & wet


def _neighbours(image: Floats) -> NDArray[np.int8]:  # [B, A] of each cell's nearest return
    rows, columns = image.shape
    wide = np.full((rows + 2, columns + 2 * COLUMNS), np.inf, np.float32)
    wide[1:-1] = np.take(image, np.arange(-COLUMNS, columns + COLUMNS), axis=1, mode="wrap")
    known = np.where(np.isfinite(image), image, np.float32(0))
    margin, count = NEAR + NEAR_RATE * known, np.zeros(image.shape, np.int8)
    for row in range(3):
        for column in range(2 * COLUMNS + 1):
            if (row, column) != (1, COLUMNS):
                count += np.abs(wide[row : row + rows, column : column + columns] - known) <= margin
    return count
