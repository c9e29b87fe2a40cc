// SPDX-License-Identifier: Apache-2.0
// nurec_lite::lazy_colour, ::lazy_colour_outer, ::settle_harmonics and ::end_lazy_step, which CUDA alone has.
#include <torch/library.h>

#include "../common/torch_site.h"
#include "../view_colour/torch_view_colour.h"
#include "params.h"

namespace nurec {
namespace {

using at::Tensor;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

float* to_floats(Tensor const& t) {
    return t.mutable_data_ptr<float>();
}

// As nurec_lite.native.groups.LazyArrays lists them.
cuda::LazyHarmonics lazy_harmonics(at::TensorList t) {
    check_group(t, "harmonics", 6, "sh0, sh_rest, and the first and second moments of each");
    auto const device = t[0].device();
    check_tensor(t[0], "sh0", at::kFloat, {-1, 1, 3}, device);
    check_tensor(t[1], "sh_rest", at::kFloat, {t[0].size(0), -1, 3}, device);
    char const* const names[4] = {"the first moment of sh0", "the first moment of sh_rest", "the second moment of sh0",
                                  "the second moment of sh_rest"};
    for (std::size_t k = 0; k < 4; ++k)
        check_tensor(t[k + 2], names[k], at::kFloat, {t[0].size(0), t[k % 2].size(1), 3}, device);
    return {t[0].size(0),
            checked_bands(t[0], t[1]),
            {to_floats(t[0]), to_floats(t[2]), to_floats(t[4])},
            {to_floats(t[1]), to_floats(t[3]), to_floats(t[5])}};
}

// As nurec_lite.native.groups.LazySteps lists them.
cuda::LazySteps lazy_steps(at::TensorList t, int64_t n, double beta_1, double beta_2, double epsilon) {
    check_group(t, "steps", 6, "taken, directions, colours, factors, and how many steps there are of sh0 and sh_rest");
    auto const device = t[0].device();
    check_tensor(t[0], "taken", at::kInt, {n}, device);
    check_tensor(t[1], "directions", at::kFloat, {n, 3}, device);
    check_tensor(t[2], "colours", at::kFloat, {n, 3}, device);
    check_tensor(t[3], "factors", at::kFloat, {cuda::RING, 4}, device);
    for (std::size_t k = 4; k < 6; ++k) check_tensor(t[k], "the number of steps", at::kFloat, {}, device);
    return {t[0].mutable_data_ptr<int>(),
            to_floats(t[1]),
            to_floats(t[2]),
            reinterpret_cast<cuda::StepFactors*>(to_floats(t[3])),
            {to_floats(t[4]), to_floats(t[5])},
            adam_betas<float>(beta_1, beta_2, epsilon)};
}

Tensor lazy_colour(at::TensorList placements, Tensor const& eye, MaybeTensor const& seen, at::TensorList harmonics,
                   at::TensorList steps, double beta_1, double beta_2, double epsilon) {
    Placements const in = checked_placements(placements_of(placements), eye);
    cuda::LazyHarmonics const sh = lazy_harmonics(harmonics);
    TORCH_CHECK_VALUE(sh.n == in.n, "there are ", in.n, " Gaussians, but harmonics of ", sh.n);
    if (seen) check_tensor(*seen, "seen", at::kByte, {in.n}, eye.device());
    Site site(eye.device());
    Tensor colour = site.empty({in.n, 3}, at::kFloat);
    cuda::lazy_colour(in, seen ? seen->const_data_ptr<uint8_t>() : nullptr, sh,
                      lazy_steps(steps, sh.n, beta_1, beta_2, epsilon), to_floats(colour), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return colour;
}

ThreeTensors lazy_colour_outer(at::TensorList placements, Tensor const& sh, Tensor const& rest, Tensor const& eye,
                               MaybeTensor const& seen, Tensor const& d_colour, Tensor const& directions,
                               Tensor const& colours) {
    PlacementTensors const t = placements_of(placements);
    Placements const in = checked_placements(t, eye);
    SeenHarmonics const harmonics = checked_sh(sh, rest, in, seen);
    check_tensor(d_colour, "d_colour", at::kFloat, {in.n, 3}, eye.device());
    check_tensor(directions, "directions", at::kFloat, {in.n, 3}, eye.device());
    check_tensor(colours, "colours", at::kFloat, {in.n, 3}, eye.device());
    Site site(eye.device());
    Tensor still_means = at::empty_like(t.still_means), means = at::empty_like(t.means);
    Tensor rotations = at::empty_like(t.rotations);
    cuda::view_colour_outer(in, harmonics, {to_floats(still_means), to_floats(means), to_floats(rotations)},
                            {d_colour.const_data_ptr<float>(), to_floats(directions), to_floats(colours)},
                            site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {still_means, means, rotations};
}

void settle_harmonics(at::TensorList harmonics, at::TensorList steps, double beta_1, double beta_2, double epsilon) {
    cuda::LazyHarmonics const sh = lazy_harmonics(harmonics);
    Site site(harmonics[0].device());
    cuda::settle_harmonics(sh, lazy_steps(steps, sh.n, beta_1, beta_2, epsilon), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void end_lazy_step(at::TensorList steps, Tensor const& rates, int64_t sh, int64_t rest, MaybeTensor const& failed,
                   double beta_1, double beta_2) {
    int64_t const n = steps.size() ? steps[0].size(0) : 0;
    cuda::LazySteps const of = lazy_steps(steps, n, beta_1, beta_2, 0);
    check_tensor(rates, "rates", at::kFloat, {-1}, steps[0].device());
    for (int64_t const k : {sh, rest})
        TORCH_CHECK_VALUE(k >= 0 && k < rates.size(0), "rates has ", rates.size(0), " numbers, but number ", k,
                          " is asked for");
    float const* const from = rates.const_data_ptr<float>();
    Site site(rates.device());
    cuda::end_lazy_step(n, of, {from + sh, from + rest}, checked_scalar(failed, "failed", rates.device()), beta_1,
                        beta_2, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("lazy_colour", &lazy_colour);
    m.impl("lazy_colour_outer", &lazy_colour_outer);
    m.impl("settle_harmonics", &settle_harmonics);
    m.impl("end_lazy_step", &end_lazy_step);
}

}  // namespace nurec
