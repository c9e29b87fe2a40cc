// SPDX-License-Identifier: Apache-2.0
// Projection through lenses that CameraModel does not have (math/lens.cuh). They have a kernel of their own, so that
// that of a pinhole needs no more registers.
#include "../common/launch.cuh"
#include "visibility.cuh"

namespace nurec::cuda {
namespace {

template <bool SHORT, bool LISTS>
__global__ void __launch_bounds__(THREADS) project_through_lens_kernel(ProjectParams p, Visibility out) {
    wait_then_launch_dependents();
    __shared__ View<float> view;
    __shared__ Lens<float> lens;
    copy_numbers(view, p.view);
    copy_numbers(lens, p.lens);
    __syncthreads();
    auto const opacity = [&](int64_t i) { return p.g.opacities[i]; };
    find_visible_in_block<true, SHORT, LISTS>(p, view, nullptr, opacity, out, 0, lens);
}

using Project = void (*)(ProjectParams, Visibility);

template <bool LISTS>
Project kernel_for(int bits) {
    return bits < DEPTH_BITS ? project_through_lens_kernel<true, LISTS> : project_through_lens_kernel<false, LISTS>;
}

}  // namespace

void look_through_lens(ProjectParams const& p, Visibility const& out, Queue const& queue) {
    Project const kernel = out.shapes ? kernel_for<true>(out.bits) : kernel_for<false>(out.bits);
    if (p.g.n) launch_pdl(kernel, blocks_for(p.g.n), THREADS, queue, p, out);
}

}  // namespace nurec::cuda
