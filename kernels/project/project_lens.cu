// SPDX-License-Identifier: Apache-2.0
// Projection through lenses that CameraModel does not have (math/lens.cuh). They have a kernel of their own, so that
// that of a pinhole needs no more registers.
#include "../common/visible.cuh"
#include "visibility.cuh"

namespace nurec::cuda {
namespace {

// LISTED: some blocks of Gaussians are passed by.
template <bool SHORT, bool LISTS, bool LISTED>
__global__ void __launch_bounds__(THREADS) project_through_lens_kernel(ProjectParams p, Visibility out) {
    wait_then_launch_dependents();
    __shared__ View<float> view;
    __shared__ Lens<float> lens;
    copy_numbers(view, p.view);
    copy_numbers(lens, p.lens);
    __syncthreads();
    auto const opacity = [&](int64_t i) { return p.g.opacities[i]; };
    for_visible_blocks<1, LISTED>(p.blocks, p.g.n, [&](int64_t first) {
        find_visible_in_block<true, SHORT, LISTS>(p, view, nullptr, first, opacity, out, 0, lens);
    });
}

using Project = void (*)(ProjectParams, Visibility);

template <bool LISTS, bool LISTED>
Project kernel_for(int bits) {
    return bits < DEPTH_BITS ? project_through_lens_kernel<true, LISTS, LISTED>
                             : project_through_lens_kernel<false, LISTS, LISTED>;
}

template <bool LISTED>
Project kernel_for(bool lists, int bits) {
    return lists ? kernel_for<true, LISTED>(bits) : kernel_for<false, LISTED>(bits);
}

}  // namespace

void look_through_lens(ProjectParams const& p, Visibility const& out, Queue const& queue) {
    Project const kernel =
        p.blocks.listed ? kernel_for<true>(out.shapes, out.bits) : kernel_for<false>(out.shapes, out.bits);
    if (p.g.n) launch_pdl(kernel, blocks_for(p.blocks, p.g.n), THREADS, queue, p, out);
}

}  // namespace nurec::cuda
