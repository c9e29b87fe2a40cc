// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::view_colour, ::view_colour_backward and ::view_colour_rank1: checks and allocation, for the
// CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <tuple>

#include "../common/torch_check.h"
#include "torch_coefficients.h"
#include "view_colour.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

struct PlacementTensors {
    at::Tensor const &still_means, &means, &rotations, &node;
};

// The tensors of nurec_lite.native.operators.view_colour.PlacementArrays.
PlacementTensors placements_of(at::TensorList t) {
    check_group(t, "placements", 4, "still_means, means, rotations, node");
    return {t[0], t[1], t[2], t[3]};
}

Placements checked_placements(PlacementTensors const& t, at::Tensor const& eye) {
    auto const device = t.means.device();
    check_tensor(t.still_means, "still_means", at::kFloat, {-1, 3}, device);
    check_tensor(t.means, "means", at::kFloat, {-1, 3}, device);
    check_tensor(t.rotations, "rotations", at::kFloat, {-1, 4}, device);
    int64_t const still = t.still_means.size(0), moving = t.means.size(0), nodes = t.rotations.size(0);
    check_tensor(t.node, "node", at::kLong, {moving}, device);
    check_tensor(eye, "eye", at::kFloat, {3}, device);
    check_range(t.node, "node", 0, nodes);
    return {still + moving,
            still,
            nodes,
            t.still_means.const_data_ptr<float>(),
            t.means.const_data_ptr<float>(),
            t.rotations.const_data_ptr<float>(),
            t.node.const_data_ptr<int64_t>(),
            eye.const_data_ptr<float>()};
}

SeenHarmonics checked_sh(at::Tensor const& sh, MaybeTensor const& rest, Placements const& in,
                         MaybeTensor const& seen = std::nullopt, MaybeTensor const& blocks = std::nullopt) {
    check_tensor(sh, "sh", at::kFloat, {in.n, rest ? 1 : -1, 3}, sh.device());
    if (rest) check_tensor(*rest, "rest", at::kFloat, {in.n, -1, 3}, sh.device());
    int64_t const s = checked_bands(sh, rest);
    auto const read = [](at::Tensor const& t) { return t.const_data_ptr<float>(); };
    if (seen) check_tensor(*seen, "seen", at::kByte, {in.n}, sh.device());
    return {s, coefficients<float const>(sh, rest, read), seen ? seen->const_data_ptr<uint8_t>() : nullptr,
            checked_blocks(blocks, in.n, sh.device())};
}

using FiveTensors = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// `forward` and `backward` are the device's drivers.
template <class Forward>
at::Tensor view_colour_by(Forward const& forward, at::TensorList placements, at::Tensor const& sh,
                          MaybeTensor const& rest, at::Tensor const& eye, MaybeTensor const& seen,
                          MaybeTensor const& blocks) {
    Placements const in = checked_placements(placements_of(placements), eye);
    SeenHarmonics const harmonics = checked_sh(sh, rest, in, seen, blocks);
    bool const checked = blocks && values_are_checked(sh.device());  // then colours that are not written pass, too
    at::Tensor colour = checked ? at::zeros({in.n, 3}, sh.options()) : at::empty({in.n, 3}, sh.options());
    forward(in, harmonics, colour.mutable_data_ptr<float>());
    return colour;
}

template <class Backward>
FiveTensors view_colour_gradients_by(Backward const& backward, at::TensorList placements, at::Tensor const& sh,
                                     MaybeTensor const& rest, at::Tensor const& eye, at::Tensor const& d_colour) {
    PlacementTensors const t = placements_of(placements);
    Placements const in = checked_placements(t, eye);
    SeenHarmonics const harmonics = checked_sh(sh, rest, in);
    check_tensor(d_colour, "d_colour", at::kFloat, {in.n, 3}, sh.device());
    at::Tensor still_means = at::empty_like(t.still_means), means = at::empty_like(t.means);
    at::Tensor rotations = at::empty_like(t.rotations), d_sh = at::empty_like(sh);
    at::Tensor d_rest = rest ? at::empty_like(*rest) : at::empty({0}, sh.options());
    auto const write = [](at::Tensor const& to) { return to.mutable_data_ptr<float>(); };
    auto const into = coefficients<float>(d_sh, rest ? MaybeTensor(d_rest) : std::nullopt, write);
    backward(in, harmonics, PlacementGrads{write(still_means), write(means), write(rotations)},
             SeenHarmonicsGrads{d_colour.const_data_ptr<float>(), into});
    return {still_means, means, rotations, d_sh, d_rest};
}

template <class Outer>
FiveTensors view_colour_outer_by(Outer const& rank1, at::TensorList placements, at::Tensor const& sh,
                                 MaybeTensor const& rest, at::Tensor const& eye, at::Tensor const& d_colour,
                                 MaybeTensor const& blocks) {
    PlacementTensors const t = placements_of(placements);
    Placements const in = checked_placements(t, eye);
    SeenHarmonics const harmonics = checked_sh(sh, rest, in, std::nullopt, blocks);
    check_tensor(d_colour, "d_colour", at::kFloat, {in.n, 3}, sh.device());
    at::Tensor still_means = at::empty_like(t.still_means), means = at::empty_like(t.means);
    at::Tensor rotations = at::empty_like(t.rotations);
    at::Tensor directions = at::empty_like(d_colour), colours = at::empty_like(d_colour);
    auto const write = [](at::Tensor const& to) { return to.mutable_data_ptr<float>(); };
    rank1(in, harmonics, PlacementGrads{write(still_means), write(means), write(rotations)},
          ShRank1{d_colour.const_data_ptr<float>(), write(directions), write(colours)});
    return {still_means, means, rotations, directions, colours};
}

using at::Tensor;

#ifdef NUREC_CUDA

Tensor view_colour(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                   MaybeTensor const& seen, MaybeTensor const& blocks) {
    Site site(sh.device());
    auto const launch = [&](Placements const& in, SeenHarmonics const& harmonics, float* colour) {
        cuda::view_colour(in, harmonics, colour, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return view_colour_by(launch, placements, sh, rest, eye, seen, blocks);
}

FiveTensors view_colour_backward(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest,
                                 Tensor const& eye, Tensor const& d_colour) {
    Site site(sh.device());
    auto const launch = [&](Placements const& in, SeenHarmonics const& harmonics, PlacementGrads const& d,
                            SeenHarmonicsGrads const& d_sh) {
        cuda::view_colour_backward(in, harmonics, d, d_sh, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return view_colour_gradients_by(launch, placements, sh, rest, eye, d_colour);
}

FiveTensors view_colour_rank1(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                              Tensor const& d_colour, MaybeTensor const& blocks) {
    Site site(sh.device());
    auto const launch = [&](Placements const& in, SeenHarmonics const& harmonics, PlacementGrads const& d,
                            ShRank1 const& rank1) {
        cuda::view_colour_rank1(in, harmonics, d, rank1, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return view_colour_outer_by(launch, placements, sh, rest, eye, d_colour, blocks);
}

void view_directions(Tensor const& means, Tensor const& eyes, Tensor const& blocks, int64_t still,
                     Tensor const& directions) {
    auto const device = means.device();
    check_tensor(means, "means", at::kFloat, {-1, 3}, device);
    check_tensor(eyes, "eyes", at::kFloat, {-1, 3}, device);
    int64_t const n = means.size(0), views = eyes.size(0);
    TORCH_CHECK_VALUE(still >= 0 && still <= n, "still is ", still, ", but must be at least 0 and at most ", n);
    check_tensor(directions, "directions", at::kFloat, {views, n, 3}, device);
    StillDirections const p = {n,
                               still,
                               views,
                               means.const_data_ptr<float>(),
                               eyes.const_data_ptr<float>(),
                               checked_blocks(blocks, n, device),
                               directions.mutable_data_ptr<float>()};
    Site site(device);
    cuda::view_directions(p, site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

#else

Tensor view_colour(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                   MaybeTensor const& seen, MaybeTensor const& blocks) {
    return view_colour_by(&cpu::view_colour, placements, sh, rest, eye, seen, blocks);
}

FiveTensors view_colour_backward(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest,
                                 Tensor const& eye, Tensor const& d_colour) {
    return view_colour_gradients_by(&cpu::view_colour_backward, placements, sh, rest, eye, d_colour);
}

FiveTensors view_colour_rank1(at::TensorList placements, Tensor const& sh, MaybeTensor const& rest, Tensor const& eye,
                              Tensor const& d_colour, MaybeTensor const& blocks) {
    return view_colour_outer_by(&cpu::view_colour_rank1, placements, sh, rest, eye, d_colour, blocks);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("view_colour", &view_colour);
    m.impl("view_colour_backward", &view_colour_backward);
    m.impl("view_colour_rank1", &view_colour_rank1);
#ifdef NUREC_CUDA
    m.impl("view_directions", &view_directions);
#endif
}

}  // namespace nurec
