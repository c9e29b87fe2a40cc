# SPDX-License-Identifier: Apache-2.0
"""Plan of the compiled kernels: the sizes of their work."""

from dataclasses import dataclass

from nurec_lite.native.operators.render import BackwardPlan
from nurec_lite.native.rank1_sh import DeferredShGrad

WHOLE = 1 << 30  # entries of a part where lists are not cut


@dataclass(frozen=True)
class RenderPlan:
    """Options set fields (`Stages.planned`); none is asked for inside a step."""

    tile: int  # pixels along either side of a camera's tile
    cell_beams: int  # rays of a full sweep in a lidar's cell: beams
    cell_steps: int  # and steps of azimuth
    cell_rays: int  # a cell with more is split
    split_backward: bool = False  # camera and lidar have backward kernels of their own; the next two are about these
    launch_bounds: bool = False  # with the register budgets of kernels/raster_tiles/backward_table.h
    half_staging: bool = False  # with half the rows in shared memory
    bundles: bool = (
        False  # lists are those of neighbouring rays, for a warp or half of one; the next two are about these
    )
    exact: bool = False  # they hold only what may meet a ray
    part: int = WHOLE  # entries; a longer list is cut into parts
    compiled: bool = False  # what they leave to torch goes through torch.compile
    sky: bool = False  # it is sampled and put behind the image by one kernel
    views: int = 1  # that one launch renders at most, for who does not train (nurec_lite/native/inference.py)
    depth_bits: int = 32  # of the keys by which a step sorts Gaussians from near to far; 24 or 16 of a coarser depth
    colour: bool = False  # it is found by one kernel, from where a Gaussian stands and is looked at
    told: bool = False  # rays tell what they know of Gaussians, and who collected these makes gradients of it
    outer: DeferredShGrad | None = None  # by which gradients of harmonics go to the update, not written

    @property
    def backward(self) -> BackwardPlan:
        return BackwardPlan(self.split_backward, self.launch_bounds, self.half_staging)


CPU_PLAN = RenderPlan(tile=4, cell_beams=4, cell_steps=4, cell_rays=32)  # small tiles waste few responses
CUDA_PLAN = RenderPlan(tile=16, cell_beams=8, cell_steps=32, cell_rays=256, views=16)  # a block of 256 threads a tile
