// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "../common/gaussians_cpu.h"
#include "../common/visible_cpu.h"
#include "activate.h"

namespace nurec::cpu {

void activate(StoredGaussians const& in, Activations const& out) {
    for (float* const hidden : {out.opacities, out.lidar_opacities})
        if (in.blocks.listed && hidden) std::fill_n(hidden, in.n, 0.f);
    for_visible_gaussians(in.blocks, in.n, [&](int64_t i) {
        store_quat(out.quats, i, normalized(load_quat(in.quats, i)));
        out.opacities[i] = sigmoid(in.opacity_logits[i]);
        for (int k = 0; k < 3; ++k) out.scales[3 * i + k] = exp(in.log_scales[3 * i + k]);
        for (int c = 0; c < in.columns; ++c) activate_lidar(out, i, c, in.lidar_logits[in.columns * i + c]);
    });
}

void activate_backward(ActivationGrads const& in, StoredGrads const& out) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) {
        if (out.quats) store_quat(out.quats, i, normalized_backward(load_quat(in.quats, i), load_quat(in.d_quats, i)));
        if (out.opacity_logits) out.opacity_logits[i] = sigmoid_backward(in.opacities[i], in.d_opacities[i]);
        for (int64_t k = 3 * i; out.log_scales && k < 3 * i + 3; ++k) out.log_scales[k] = in.d_scales[k] * in.scales[k];
        for (int c = 0; out.lidar_logits && c < in.columns; ++c)
            out.lidar_logits[in.columns * i + c] = lidar_backward(in, i, c);
    }
}

}  // namespace nurec::cpu
