// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::footprints: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "../common/torch_check.h"
#include "footprints.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

struct SeenTensors {
    at::Tensor const &means, &node, &lookouts, &lenses, &masked, &masks, &valid, &quaternions, &translations;
};

// The tensors of nurec_lite.native.operators.footprints.FootprintArgs.
SeenTensors seen_of(at::TensorList t) {
    check_group(t, "seen", 9, "means, node, lookouts, lenses, masked, masks, valid, quaternions, translations");
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7], t[8]};
}

Watched checked_seen(SeenTensors const& t, double nearest, double margin) {
    auto const device = t.means.device();
    check_tensor(t.means, "means", at::kFloat, {-1, 3}, device);
    int64_t const n = t.means.size(0);
    check_tensor(t.node, "node", at::kLong, {n}, device);
    constexpr int64_t NUMBERS = sizeof(Lookout<float>) / sizeof(float);
    check_tensor(t.lookouts, "lookouts", at::kFloat, {-1, NUMBERS}, device);
    int64_t const images = t.lookouts.size(0);
    constexpr int64_t LENS = sizeof(Lens<float>) / sizeof(float);
    check_tensor(t.lenses, "lenses", at::kFloat, {t.lenses.size(0) ? images : 0, LENS}, device);
    check_tensor(t.masked, "masked", at::kBool, {-1}, device);
    check_tensor(t.masks, "masks", at::kLong, {t.masks.size(0) ? images : 0}, device);
    check_range(t.masks, "masks", -1, t.masked.size(0));
    check_tensor(t.valid, "valid", at::kBool, {images, -1}, device);
    int64_t const tracks = t.valid.size(1);
    check_tensor(t.quaternions, "quaternions", at::kFloat, {images, tracks, 4}, device);
    check_tensor(t.translations, "translations", at::kFloat, {images, tracks, 3}, device);
    check_range(t.node, "node", 0, tracks + 1);
    TORCH_CHECK_VALUE(nearest > 0, "nearest is ", nearest, ", but must be above 0");
    return {n,
            images,
            tracks,
            t.means.const_data_ptr<float>(),
            t.node.const_data_ptr<int64_t>(),
            reinterpret_cast<Lookout<float> const*>(t.lookouts.const_data_ptr<float>()),
            t.valid.const_data_ptr<bool>(),
            t.quaternions.const_data_ptr<float>(),
            t.translations.const_data_ptr<float>(),
            float(nearest),
            float(margin),
            t.lenses.size(0) ? reinterpret_cast<Lens<float> const*>(t.lenses.const_data_ptr<float>()) : nullptr,
            t.masked.const_data_ptr<bool>(),
            t.masks.size(0) ? t.masks.const_data_ptr<int64_t>() : nullptr};
}

// `driver` is the device's.
template <class Driver>
at::Tensor footprints_by(Driver const& driver, at::TensorList seen, double nearest, double margin) {
    SeenTensors const t = seen_of(seen);
    Watched const in = checked_seen(t, nearest, margin);
    at::Tensor most = at::empty({in.n}, t.means.options());
    driver(in, most.mutable_data_ptr<float>());
    return most;
}

#ifdef NUREC_CUDA

at::Tensor footprints(at::TensorList seen, double nearest, double margin) {
    Site site(seen_of(seen).means.device());
    auto const launch = [&](Watched const& in, float* most) {
        cuda::footprints(in, most, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return footprints_by(launch, seen, nearest, margin);
}

#else

at::Tensor footprints(at::TensorList seen, double nearest, double margin) {
    return footprints_by(&cpu::footprints, seen, nearest, margin);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("footprints", &footprints);
}

}  // namespace nurec
