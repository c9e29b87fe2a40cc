// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::find_nearest, which CUDA alone has.
#ifdef NUREC_CUDA

#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include "../common/torch_check.h"
#include "../common/torch_site.h"
#include "nearest.h"

namespace nurec {
namespace {

using at::Tensor;

void check_nearest(Tensor const& queries, Tensor const& points, int64_t k) {
    check_tensor(points, "points", at::kDouble, {-1, 3}, points.device());
    check_tensor(queries, "queries", at::kDouble, {-1, 3}, points.device());
    check_count(k, "k", MAX_NEIGHBOURS);
    check_count(points.size(0), "number of points", MAX_CAPACITY);
    TORCH_CHECK_VALUE(k <= points.size(0), "k is ", k, ", but there are only ", points.size(0), " points");
    TORCH_CHECK_VALUE(queries.size(0) <= MAX_CAPACITY, "there are ", queries.size(0), " queries, but must be ",
                      MAX_CAPACITY, " at most");
}

std::tuple<Tensor, Tensor> find_nearest(Tensor const& queries, Tensor const& points, int64_t k) {
    check_nearest(queries, points, k);
    Site site(points.device());
    int64_t const n = points.size(0), q = queries.size(0);
    Tensor const ends = at::stack({at::amin(points, 0), at::amax(points, 0)});
    Tensor const distances = site.empty({q, k}, at::kDouble), numbers = site.empty({q, k}, at::kLong);
    cuda::find_nearest(
        {n, q, int(k), points.const_data_ptr<double>(), queries.const_data_ptr<double>(), ends.const_data_ptr<double>(),
         distances.mutable_data_ptr<double>(), numbers.mutable_data_ptr<int64_t>()},
        site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {distances, numbers};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("find_nearest", &find_nearest);
}

}  // namespace nurec

#endif
