// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::activate and ::activate_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "activate.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

using FourTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using FiveTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

struct ActivationTensors {
    at::Tensor const &quats, &scales, &opacities, &lidar, &lidar_opacities;
};

struct ActivationGradTensors {
    MaybeTensor const &quats, &scales, &opacities, &lidar, &lidar_opacities;
};

void check_columns(int64_t columns) {
    TORCH_CHECK_VALUE(columns == LIDAR_VALUES || columns == LIDAR_VALUES + 1, "lidar_logits has ", columns,
                      " columns, but must have ", LIDAR_VALUES, ", or one more: the lidar's own opacity");
}

StoredGaussians checked_stored(at::Tensor const& quats, at::Tensor const& log_scales, at::Tensor const& opacity_logits,
                               at::Tensor const& lidar_logits, MaybeTensor const& blocks) {
    auto const device = quats.device();
    check_tensor(quats, "quats", at::kFloat, {-1, 4}, device);
    int64_t const n = quats.size(0);
    check_tensor(log_scales, "log_scales", at::kFloat, {n, 3}, device);
    check_tensor(opacity_logits, "opacity_logits", at::kFloat, {n}, device);
    check_tensor(lidar_logits, "lidar_logits", at::kFloat, {n, -1}, device);
    check_columns(lidar_logits.size(1));
    return {n,
            lidar_logits.size(1),
            quats.const_data_ptr<float>(),
            log_scales.const_data_ptr<float>(),
            opacity_logits.const_data_ptr<float>(),
            lidar_logits.const_data_ptr<float>(),
            checked_blocks(blocks, n, device)};
}

// `forward` and `backward` are the device's drivers.
template <class Forward>
FiveTensors activate_by(Forward const& forward, at::Tensor const& quats, at::Tensor const& log_scales,
                        at::Tensor const& opacity_logits, at::Tensor const& lidar_logits, MaybeTensor const& blocks) {
    at::Tensor const turns = aligned(quats);
    StoredGaussians const in = checked_stored(turns, log_scales, opacity_logits, lidar_logits, blocks);
    bool const own = in.columns > LIDAR_VALUES;
    bool const checked = blocks && values_are_checked(quats.device());  // then numbers that are not written pass, too
    auto const made = [&](at::IntArrayRef shape) {
        return checked ? at::ones(shape, quats.options()) : at::empty(shape, quats.options());
    };
    at::Tensor unit = made({in.n, 4}), scales = made({in.n, 3}), opacities = made({in.n});
    at::Tensor lidar = made({in.n, LIDAR_VALUES});
    at::Tensor lidar_opacities = made({own ? in.n : 0});
    auto const write = [](at::Tensor const& to) { return to.mutable_data_ptr<float>(); };
    forward(in, Activations{write(unit), write(scales), write(opacities), write(lidar),
                            own ? write(lidar_opacities) : nullptr});
    return {unit, scales, opacities, lidar, lidar_opacities};
}

float const* checked_gradient(MaybeTensor const& d, char const* name, at::Tensor const& of) {
    if (!d) return nullptr;
    TORCH_CHECK_VALUE(d->sizes() == of.sizes(), name, " has shape ", d->sizes(), ", but must have ", of.sizes());
    TORCH_CHECK_TYPE(d->scalar_type() == at::kFloat, name, " is ", d->scalar_type(), ", but must be Float");
    TORCH_CHECK_VALUE(d->device() == of.device(), name, " is on ", d->device(), ", but must be on ", of.device());
    TORCH_CHECK_VALUE(d->is_contiguous(), name, " is not contiguous; call .contiguous()");
    return d->const_data_ptr<float>();
}

ActivationGrads checked_gradients(ActivationTensors const& t, ActivationGradTensors const& d, int64_t columns) {
    auto const device = t.quats.device();
    check_columns(columns);
    check_tensor(t.quats, "quats", at::kFloat, {-1, 4}, device);
    int64_t const n = t.quats.size(0);
    check_tensor(t.scales, "scales", at::kFloat, {n, 3}, device);
    check_tensor(t.opacities, "opacities", at::kFloat, {n}, device);
    check_tensor(t.lidar, "lidar", at::kFloat, {n, LIDAR_VALUES}, device);
    check_tensor(t.lidar_opacities, "lidar_opacities", at::kFloat, {columns > LIDAR_VALUES ? n : 0}, device);
    auto const read = [](at::Tensor const& from) { return from.const_data_ptr<float>(); };
    return {n,
            columns,
            read(t.quats),
            checked_gradient(d.quats, "d_unit", t.quats),
            read(t.scales),
            checked_gradient(d.scales, "d_scales", t.scales),
            read(t.opacities),
            checked_gradient(d.opacities, "d_opacities", t.opacities),
            read(t.lidar),
            checked_gradient(d.lidar, "d_lidar", t.lidar),
            read(t.lidar_opacities),
            checked_gradient(d.lidar_opacities, "d_lidar_opacities", t.lidar_opacities)};
}

// Empty where nothing depends on it.
template <class Backward>
FourTensors activate_gradients_by(Backward const& backward, ActivationTensors const& t, ActivationGradTensors const& d,
                                  int64_t columns) {
    at::Tensor const turns = aligned(t.quats);
    MaybeTensor const d_unit = d.quats ? MaybeTensor(aligned(*d.quats)) : std::nullopt;
    ActivationGrads const in = checked_gradients({turns, t.scales, t.opacities, t.lidar, t.lidar_opacities},
                                                 {d_unit, d.scales, d.opacities, d.lidar, d.lidar_opacities}, columns);
    auto const made = [&](bool asked, at::IntArrayRef shape) {
        return asked ? at::empty(shape, turns.options()) : at::empty({0}, turns.options());
    };
    auto const write = [](bool asked, at::Tensor const& to) { return asked ? to.mutable_data_ptr<float>() : nullptr; };
    bool const turn(d.quats), size(d.scales), fade(d.opacities), tell = d.lidar || d.lidar_opacities;
    at::Tensor quats = made(turn, {in.n, 4}), log_scales = made(size, {in.n, 3});
    at::Tensor opacity_logits = made(fade, {in.n}), lidar_logits = made(tell, {in.n, columns});
    backward(in, StoredGrads{write(turn, quats), write(size, log_scales), write(fade, opacity_logits),
                             write(tell, lidar_logits)});
    return {quats, log_scales, opacity_logits, lidar_logits};
}

using at::Tensor;

#ifdef NUREC_CUDA

FiveTensors activate(Tensor const& quats, Tensor const& log_scales, Tensor const& opacity_logits,
                     Tensor const& lidar_logits, MaybeTensor const& blocks) {
    Site site(quats.device());
    auto const launch = [&](StoredGaussians const& in, Activations const& out) {
        cuda::activate(in, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return activate_by(launch, quats, log_scales, opacity_logits, lidar_logits, blocks);
}

FourTensors activate_backward(Tensor const& quats, Tensor const& scales, Tensor const& opacities, Tensor const& lidar,
                              Tensor const& lidar_opacities, int64_t columns, MaybeTensor const& d_unit,
                              MaybeTensor const& d_scales, MaybeTensor const& d_opacities, MaybeTensor const& d_lidar,
                              MaybeTensor const& d_lidar_opacities) {
    Site site(quats.device());
    auto const launch = [&](ActivationGrads const& in, StoredGrads const& out) {
        cuda::activate_backward(in, out, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return activate_gradients_by(launch, {quats, scales, opacities, lidar, lidar_opacities},
                                 {d_unit, d_scales, d_opacities, d_lidar, d_lidar_opacities}, columns);
}

#else

FiveTensors activate(Tensor const& quats, Tensor const& log_scales, Tensor const& opacity_logits,
                     Tensor const& lidar_logits, MaybeTensor const& blocks) {
    return activate_by(&cpu::activate, quats, log_scales, opacity_logits, lidar_logits, blocks);
}

FourTensors activate_backward(Tensor const& quats, Tensor const& scales, Tensor const& opacities, Tensor const& lidar,
                              Tensor const& lidar_opacities, int64_t columns, MaybeTensor const& d_unit,
                              MaybeTensor const& d_scales, MaybeTensor const& d_opacities, MaybeTensor const& d_lidar,
                              MaybeTensor const& d_lidar_opacities) {
    return activate_gradients_by(&cpu::activate_backward, {quats, scales, opacities, lidar, lidar_opacities},
                                 {d_unit, d_scales, d_opacities, d_lidar, d_lidar_opacities}, columns);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("activate", &activate);
    m.impl("activate_backward", &activate_backward);
}

}  // namespace nurec
