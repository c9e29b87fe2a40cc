// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::adam: checks and allocation, for the CPU and for CUDA.
#include <ATen/core/List.h>
#include <torch/library.h>

#include <array>
#include <optional>

#include "../appearance/torch_coefficients.h"
#include "../common/torch_check.h"
#include "adam.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

using MaybeTensors = c10::List<std::optional<at::Tensor>>;

struct AdamArguments {
    at::TensorList parameters;
    MaybeTensors const& gradients;
    at::TensorList first, second, steps;
    at::Tensor const& rates;
    std::optional<at::Tensor> const& failed;
    c10::List<bool> const& touched_only;
    double beta_1, beta_2, epsilon;
    MaybeTensor const &directions, &colours;
    at::OptionalIntArrayRef places;  // of the rates, a tensor's own each; none: as they come
    MaybeTensor const& blocks;       // of the Gaussians, which the rows of `touched_only` tensors are
};

// Whether the same place in memory is the same element of both, of equal shapes.
bool same_layout(at::Tensor const& a, at::Tensor const& b) {
    for (int64_t k = 0; k < a.dim(); ++k)
        if (a.size(k) > 1 && a.stride(k) != b.stride(k)) return false;
    return true;
}

void check_like(at::Tensor const& t, char const* name, std::size_t k, at::Tensor const& parameter,
                at::ScalarType dtype = at::kFloat) {
    TORCH_CHECK_VALUE(t.sizes() == parameter.sizes(), name, "[", k, "] has shape ", t.sizes(),
                      ", but must have that of its parameter, ", parameter.sizes());
    TORCH_CHECK_TYPE(t.scalar_type() == dtype, name, "[", k, "] is ", t.scalar_type(), ", but must be ", dtype);
    TORCH_CHECK_VALUE(t.device() == parameter.device(), name, "[", k, "] is on ", t.device(), ", but must be on ",
                      parameter.device());
    TORCH_CHECK_VALUE(t.numel() == 0 || (t.is_non_overlapping_and_dense() && same_layout(t, parameter)), name, "[", k,
                      "] has strides ", t.strides(), ", but must have those of its parameter, ", parameter.strides(),
                      ", without gaps");
}

void check_scalar(at::Tensor const& t, char const* name, at::Device device) {
    check_tensor(t, name, at::kFloat, {}, device);
}

bool narrow_moments(AdamArguments const& a, std::size_t k) {
    return a.first[k].scalar_type() == at::kBFloat16;
}

void check_moments(AdamArguments const& a, std::size_t k) {
    auto const dtype = narrow_moments(a, k) ? at::kBFloat16 : at::kFloat;
    check_like(a.first[k], "first", k, a.parameters[k], dtype);
    check_like(a.second[k], "second", k, a.parameters[k], dtype);
}

void check_rates(AdamArguments const& a) {
    int64_t const n = int64_t(a.parameters.size());
    check_tensor(a.rates, "rates", at::kFloat, {a.places ? -1 : n}, a.rates.device());
    if (!a.places) return;
    TORCH_CHECK_VALUE(int64_t(a.places->size()) == n, "places has ", a.places->size(),
                      " elements, but must have as many as parameters, ", n);
    for (int64_t const place : *a.places)
        TORCH_CHECK_VALUE(place >= 0 && place < a.rates.size(0), "places has a ", place, ", but rates has ",
                          a.rates.size(0), " elements");
}

float const* rate_of(AdamArguments const& a, std::size_t k) {
    return a.rates.const_data_ptr<float>() + (a.places ? (*a.places)[k] : int64_t(k));
}

void check_adam(AdamArguments const& a) {
    auto const n = a.parameters.size();
    TORCH_CHECK_VALUE(n <= std::size_t(MAX_TENSORS), "parameters has ", n, " tensors, but must have ", MAX_TENSORS,
                      " at most");
    TORCH_CHECK_VALUE(a.gradients.size() == n && a.first.size() == n && a.second.size() == n && a.steps.size() == n &&
                          a.touched_only.size() == n,
                      "gradients, first, second, steps and touched_only must have as many elements as parameters, ", n);
    auto const device = a.rates.device();
    check_rates(a);
    if (a.failed) check_scalar(*a.failed, "failed", device);
    for (std::size_t k = 0; k < n; ++k) {
        check_scalar(a.steps[k], "a tensor of steps", device);
        check_like(a.parameters[k], "parameters", k, a.parameters[k]);
        if (auto const gradient = a.gradients.get(k)) check_like(*gradient, "gradients", k, a.parameters[k]);
        check_moments(a, k);
        TORCH_CHECK_VALUE(a.parameters[k].device() == device, "parameters[", k, "] is on ", a.parameters[k].device(),
                          ", but must be on ", device, " as rates are");
    }
}

// Places of the two parameters without a gradient, if directions and colours make one.
std::optional<std::array<std::size_t, 2>> places_of_harmonics(AdamArguments const& a) {
    std::array<std::size_t, 2> places = {};
    std::size_t n = 0;
    for (std::size_t k = 0; k < a.gradients.size(); ++k) {
        if (a.gradients.get(k)) continue;
        if (n < 2) places[n] = k;
        ++n;
    }
    TORCH_CHECK_VALUE(a.directions.has_value() == a.colours.has_value(),
                      "directions and colours must be given both, or neither of them");
    std::size_t const wanted = a.directions ? 2 : 0;
    TORCH_CHECK_VALUE(n == wanted, "gradients has ", n, " elements that are None, but must have ", wanted,
                      ": two with directions and colours, else none");
    return a.directions ? std::optional(places) : std::nullopt;
}

// [V, N, 3], each view without gaps.
void check_factors(at::Tensor const& t, char const* name, at::Tensor const& directions, int64_t n, at::Device device) {
    TORCH_CHECK_VALUE(t.dim() == 3 && t.size(0) > 0, name, " has shape ", t.sizes(), ", but must have [V, N, 3]");
    check_tensor(t[0], name, at::kFloat, {n, 3}, device);
    TORCH_CHECK_VALUE(t.size(0) == directions.size(0) && (t.size(0) == 1 || t.stride(0) == directions.stride(0)), name,
                      " has ", t.size(0), " views, ", t.stride(0), " numbers apart, but directions has ",
                      directions.size(0), ", ", directions.stride(0), " apart");
}

// Gaussians of the `touched_only` tensors, if blocks are given; all have as many.
int64_t gaussians_of(AdamArguments const& a) {
    int64_t rows = -1;
    for (std::size_t k = 0; a.blocks && k < a.touched_only.size(); ++k) {
        if (!a.touched_only.get(k)) continue;
        at::Tensor const& t = a.parameters[k];
        TORCH_CHECK_VALUE(t.dim() && t.is_contiguous() && (rows < 0 || t.size(0) == rows), "parameters[", k,
                          "] has shape ", t.sizes(), " and strides ", t.strides(),
                          ", but with blocks it must be contiguous and have a row for each Gaussian");
        rows = t.size(0);
    }
    TORCH_CHECK_VALUE(!a.blocks || rows >= 0, "blocks are given, but no tensor is touched_only");
    return rows;
}

VisibleBlocks blocks_of(AdamArguments const& a) {
    return checked_blocks(a.blocks, gaussians_of(a), a.rates.device());
}

AdamHarmonics harmonics_of_step(AdamArguments const& a) {
    auto const places = places_of_harmonics(a);
    if (!places) return {};
    auto const [k, l] = *places;
    at::Tensor const &sh = a.parameters[k], &rest = a.parameters[l];
    auto const device = a.rates.device();
    check_tensor(sh, "the first parameter without a gradient", at::kFloat, {-1, 1, 3}, device);
    check_tensor(rest, "the second parameter without a gradient", at::kFloat, {sh.size(0), -1, 3}, device);
    TORCH_CHECK_TYPE(narrow_moments(a, k) == narrow_moments(a, l), "moments of the parameters without a gradient are ",
                     a.first[k].scalar_type(), " and ", a.first[l].scalar_type(), ", but must be of one type");
    check_factors(*a.directions, "directions", *a.directions, sh.size(0), device);
    check_factors(*a.colours, "colours", *a.directions, sh.size(0), device);
    return {sh.size(0),
            checked_bands(sh, rest),
            int(k),
            int(l),
            a.directions->size(0),
            a.directions->stride(0),
            a.directions->const_data_ptr<float>(),
            a.colours->const_data_ptr<float>(),
            a.touched_only.get(k) && a.touched_only.get(l) ? blocks_of(a) : VisibleBlocks{nullptr}};
}

// Values of a block of Gaussians in tensor k.
int64_t of_block(AdamArguments const& a, std::size_t k) {
    at::Tensor const& t = a.parameters[k];
    bool const asks = a.blocks && a.touched_only.get(k) && t.numel();
    return asks ? BLOCK_GAUSSIANS * (t.numel() / t.size(0)) : 0;
}

AdamParams checked_adam(AdamArguments const& a) {
    check_adam(a);
    AdamParams p = {int(a.parameters.size()),
                    {},
                    harmonics_of_step(a),
                    a.failed ? a.failed->const_data_ptr<float>() : nullptr,
                    gaussians_of(a),
                    blocks_of(a),
                    a.beta_1,
                    a.beta_2,
                    adam_betas<float>(a.beta_1, a.beta_2, a.epsilon)};
    for (std::size_t k = 0; k < a.parameters.size(); ++k) {
        auto const gradient = a.gradients.get(k);
        p.tensors[k] = {a.parameters[k].numel(),
                        gradient ? gradient->const_data_ptr<float>() : nullptr,
                        a.parameters[k].mutable_data_ptr<float>(),
                        a.first[k].mutable_data_ptr(),
                        a.second[k].mutable_data_ptr(),
                        a.steps[k].mutable_data_ptr<float>(),
                        rate_of(a, k),
                        narrow_moments(a, k),
                        a.touched_only.get(k),
                        of_block(a, k)};
    }
    return p;
}

#ifdef NUREC_CUDA

void adam(at::TensorList parameters, MaybeTensors const& gradients, at::TensorList first, at::TensorList second,
          at::TensorList steps, at::Tensor const& rates, std::optional<at::Tensor> const& failed,
          c10::List<bool> const& touched_only, double beta_1, double beta_2, double epsilon,
          MaybeTensor const& directions, MaybeTensor const& colours, at::OptionalIntArrayRef places,
          MaybeTensor const& blocks) {
    AdamParams const p = checked_adam({parameters, gradients, first, second, steps, rates, failed, touched_only, beta_1,
                                       beta_2, epsilon, directions, colours, places, blocks});
    Site site(rates.device());
    cuda::adam(p, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

#else

void adam(at::TensorList parameters, MaybeTensors const& gradients, at::TensorList first, at::TensorList second,
          at::TensorList steps, at::Tensor const& rates, std::optional<at::Tensor> const& failed,
          c10::List<bool> const& touched_only, double beta_1, double beta_2, double epsilon,
          MaybeTensor const& directions, MaybeTensor const& colours, at::OptionalIntArrayRef places,
          MaybeTensor const& blocks) {
    AdamParams const p = checked_adam({parameters, gradients, first, second, steps, rates, failed, touched_only, beta_1,
                                       beta_2, epsilon, directions, colours, places, blocks});
    cpu::adam(p);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("adam", &adam);
}

}  // namespace nurec
