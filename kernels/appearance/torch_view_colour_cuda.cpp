// SPDX-License-Identifier: Apache-2.0
// nurec_lite::view_colour on CUDA.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "torch_view_colour.h"

namespace nurec {
namespace {

using at::Tensor;

Tensor view_colour(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                   MaybeTensor const& seen) {
    Site site(sh.device());
    auto const launch = [&](Placements const& in, SeenHarmonics const& harmonics, float* colour) {
        cuda::view_colour(in, harmonics, colour, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return view_colour_by(launch, placements, sh, rest, eye, seen);
}

FiveTensors view_colour_backward(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest,
                                 Tensor const& eye, Tensor const& d_colour) {
    Site site(sh.device());
    auto const launch = [&](Placements const& in, SeenHarmonics const& harmonics, PlacementGrads const& d,
                            SeenHarmonicsGrads const& d_sh) {
        cuda::view_colour_backward(in, harmonics, d, d_sh, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return view_colour_gradients_by(launch, placements, sh, rest, eye, d_colour);
}

FiveTensors view_colour_rank1(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                              Tensor const& d_colour) {
    Site site(sh.device());
    auto const launch = [&](Placements const& in, SeenHarmonics const& harmonics, PlacementGrads const& d,
                            ShRank1 const& rank1) {
        cuda::view_colour_rank1(in, harmonics, d, rank1, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return view_colour_outer_by(launch, placements, sh, rest, eye, d_colour);
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("view_colour", &view_colour);
    m.impl("view_colour_backward", &view_colour_backward);
    m.impl("view_colour_rank1", &view_colour_rank1);
}

}  // namespace nurec
