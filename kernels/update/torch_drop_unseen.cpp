// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::drop_unseen, on CUDA alone.
#include <torch/library.h>

#ifdef NUREC_CUDA

#include <algorithm>

#include "../common/torch_check.h"
#include "../common/torch_site.h"
#include "drop_unseen.h"

namespace nurec {
namespace {

void drop_unseen(at::Tensor const& d_means, at::Tensor const& blocks, at::TensorList gradients) {
    auto const device = d_means.device();
    check_tensor(d_means, "d_means", at::kFloat, {-1, 3}, device);
    check_count(int64_t(gradients.size()), "number of gradients", cuda::MAX_UNSEEN_GRADIENTS);
    int64_t const n = d_means.size(0);
    cuda::UnseenGradients p = {
        n, checked_blocks(blocks, n, device), d_means.const_data_ptr<float>(), int(gradients.size()), {}, {}};
    for (std::size_t k = 0; k < gradients.size(); ++k) {
        at::Tensor const& t = gradients[k];
        TORCH_CHECK_VALUE(
            t.device() == device && t.scalar_type() == at::kFloat && t.is_contiguous() && t.dim() > 0 && t.size(0) == n,
            "gradients[", k, "] must be a contiguous float32 tensor on ", device, " with ", n, " rows");
        p.gradients[k] = t.mutable_data_ptr<float>(), p.widths[k] = int(t.numel() / std::max(n, int64_t(1)));
    }
    Site site(device);
    cuda::drop_unseen(p, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("drop_unseen", &drop_unseen);
}

}  // namespace nurec

#endif
