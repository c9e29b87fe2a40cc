// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::sgld_noise: checks and allocation, for the CPU and for CUDA.
#include <torch/library.h>

#include "../common/torch_check.h"
#include "sgld_noise.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

struct ExploreArguments {
    at::Tensor const &means, &log_scales, &quats, &opacity_logits, &lidar_logits, &step;
    int64_t seed;
    at::Tensor const& amount;
    MaybeTensor const& failed;
    double least;
    MaybeTensor const& blocks;
};

ExploringGaussians checked_explore(ExploreArguments const& a) {
    auto const device = a.means.device();
    check_tensor(a.means, "means", at::kFloat, {-1, 3}, device);
    int64_t const n = a.means.size(0);
    check_tensor(a.log_scales, "log_scales", at::kFloat, {n, 3}, device);
    check_tensor(a.quats, "quats", at::kFloat, {n, 4}, device);
    check_tensor(a.opacity_logits, "opacity_logits", at::kFloat, {n}, device);
    check_tensor(a.lidar_logits, "lidar_logits", at::kFloat, {n, -1}, device);
    check_tensor(a.step, "step", at::kFloat, {}, device);
    TORCH_CHECK_VALUE(a.seed >= 0 && a.seed <= UINT32_MAX, "seed is ", a.seed, ", which has not 32 bits");
    check_tensor(a.amount, "amount", at::kFloat, {}, device);
    if (a.failed) check_tensor(*a.failed, "failed", at::kFloat, {}, device);
    return {n,
            a.lidar_logits.size(1),
            a.means.mutable_data_ptr<float>(),
            a.log_scales.mutable_data_ptr<float>(),
            a.quats.const_data_ptr<float>(),
            a.opacity_logits.const_data_ptr<float>(),
            a.lidar_logits.const_data_ptr<float>(),
            a.step.const_data_ptr<float>(),
            a.amount.const_data_ptr<float>(),
            a.failed ? a.failed->const_data_ptr<float>() : nullptr,
            uint32_t(a.seed),
            float(a.least),
            checked_blocks(a.blocks, n, device)};
}

// `driver` is the device's.
template <class Driver>
void explore_by(Driver const& driver, ExploreArguments const& a) {
    at::Tensor const quats = aligned(a.quats);
    driver(checked_explore({a.means, a.log_scales, quats, a.opacity_logits, a.lidar_logits, a.step, a.seed, a.amount,
                            a.failed, a.least, a.blocks}));
}

using at::Tensor;

#ifdef NUREC_CUDA

void sgld_noise(Tensor const& means, Tensor const& log_scales, Tensor const& quats, Tensor const& opacity_logits,
                Tensor const& lidar_logits, Tensor const& step, int64_t seed, Tensor const& amount,
                MaybeTensor const& failed, double least, MaybeTensor const& blocks) {
    Site site(means.device());
    auto const launch = [&](ExploringGaussians const& in) {
        cuda::sgld_noise(in, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    explore_by(launch,
               {means, log_scales, quats, opacity_logits, lidar_logits, step, seed, amount, failed, least, blocks});
}

#else

void sgld_noise(Tensor const& means, Tensor const& log_scales, Tensor const& quats, Tensor const& opacity_logits,
                Tensor const& lidar_logits, Tensor const& step, int64_t seed, Tensor const& amount,
                MaybeTensor const& failed, double least, MaybeTensor const& blocks) {
    explore_by(&cpu::sgld_noise,
               {means, log_scales, quats, opacity_logits, lidar_logits, step, seed, amount, failed, least, blocks});
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("sgld_noise", &sgld_noise);
}

}  // namespace nurec
