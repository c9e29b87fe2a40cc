# SPDX-License-Identifier: Apache-2.0
"""The plan of the compiled stages: every choice between kernels, and the sizes of their work."""

from dataclasses import dataclass

from nurec_lite.native.operators.render import BackwardPlan
from nurec_lite.native.operators.tile import LidarCells
from nurec_lite.native.rank1_sh import DeferredShGrad

UNCUT = 1 << 30  # entries of a segment where lists are not cut


@dataclass(frozen=True)
class RenderPlan:
    """Options set fields, once, before the first step (`Stages.planned`)."""

    # block tiles (kernels/raster_tiles)
    tile: int  # pixels along either side of a camera's tile
    cell_beams: int  # rays of a full sweep in a lidar's cell: beams
    cell_steps: int  # and steps of azimuth
    cell_rays: int  # a cell with more is split
    split_backward: bool = False  # separate backward kernels for camera and lidar; the next two need it
    launch_bounds: bool = False  # with the register budgets of kernels/raster_tiles/backward_table.h
    half_staging: bool = False  # with half the rows in shared memory
    # warp tiles (kernels/raster_warps)
    warp_tiles: bool = False  # lists belong to the 32 rays of a warp, or to 16 of them; the next three need it
    tight_lists: bool = False  # lists hold only Gaussians that may hit a ray
    segment_entries: int = UNCUT  # a longer list is cut into segments
    deferred_backward: bool = False  # views accumulate moments, one epilogue makes gradients of those of all views
    # both
    depth_bits: int = 32  # of the keys that sort Gaussians from near to far; 24 or 16 of a coarser depth
    fused_sky: bool = False  # one kernel samples the sky and blends the image over it
    fused_colour: bool = False  # one kernel finds colours, without view directions in memory
    rank1_sh: DeferredShGrad | None = None  # takes gradients of harmonics as two factors, to the update
    compile_rest: bool = False  # functions that are left to torch go through torch.compile
    max_views: int = 1  # of one launch without training (nurec_lite/native/inference.py)

    @property
    def backward(self) -> BackwardPlan:
        return BackwardPlan(self.split_backward, self.launch_bounds, self.half_staging)

    @property
    def cells(self) -> LidarCells:
        return LidarCells(self.cell_beams, self.cell_steps, self.cell_rays)


CPU_PLAN = RenderPlan(tile=4, cell_beams=4, cell_steps=4, cell_rays=32)  # small tiles waste few responses
CUDA_PLAN = RenderPlan(
    tile=16, cell_beams=8, cell_steps=32, cell_rays=256, max_views=16
)  # a block of 256 threads a tile
