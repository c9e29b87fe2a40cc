// SPDX-License-Identifier: Apache-2.0
// Projects the Gaussians of views of cameras, some with a lens that CameraModel does not have (math/lens.cuh). They
// have a kernel of their own, so that that of pinholes needs no more registers. One thread an instance.
#include "../../common/launch.cuh"
#include "../../project/visibility.cuh"
#include "views.cuh"

namespace nurec::cuda {
namespace {

template <bool SHORT>
__global__ void __launch_bounds__(THREADS) project_views_through_lenses_kernel(Views p, Visibility out) {
    wait_then_launch_dependents();
    __shared__ View<float> view;
    __shared__ Lens<float> lens;
    int64_t const v = blockIdx.y, number = p.scene.g.n * v;
    copy_numbers(view, &p.scene.rows[v].view);
    copy_numbers(lens, &p.scene.rows[v].lens);
    __syncthreads();
    ProjectParams const seen = {seen_from(p.scene, v), nullptr, true, {}};
    auto const opacity = [&](int64_t i) { return opacity_of(p.scene, v, i); };
    if (lens.exists())
        find_visible_in_block<true, SHORT, false>(seen, view, nullptr, blockIdx.x * int64_t(THREADS), opacity, out,
                                                  number, lens);
    else
        find_visible_in_block<true, SHORT, false>(seen, view, nullptr, blockIdx.x * int64_t(THREADS), opacity, out,
                                                  number);
}

}  // namespace

void project_through_lenses(Views const& p, Visibility const& out, Queue const& queue) {
    dim3 const blocks(blocks_for(p.scene.g.n), unsigned(p.scene.views));
    auto const kernel =
        out.bits < DEPTH_BITS ? project_views_through_lenses_kernel<true> : project_views_through_lenses_kernel<false>;
    launch_pdl(kernel, blocks, THREADS, queue, p, out);
}

}  // namespace nurec::cuda
