// SPDX-License-Identifier: Apache-2.0
// nurec_lite::move_actors on the CPU.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "move_actors_cpu.h"
#include "torch_move_actors.h"

namespace nurec {
namespace {

using at::Tensor;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

cpu::Actors actors(Tensor const& means, Tensor const& quats, Tensor const& starts, Tensor const& key_offsets,
                   Tensor const& key_times, Tensor const& translations, Tensor const& quaternions,
                   Tensor const& times) {
    check_actors(means, quats, starts, key_offsets, key_times, translations, quaternions, times);
    return {means.size(0),
            starts.size(0) - 1,
            times.size(0),
            means.const_data_ptr<float>(),
            quats.const_data_ptr<float>(),
            starts.const_data_ptr<int64_t>(),
            key_offsets.const_data_ptr<int64_t>(),
            key_times.const_data_ptr<double>(),
            translations.const_data_ptr<float>(),
            quaternions.const_data_ptr<float>(),
            times.const_data_ptr<double>()};
}

Four move_actors(Tensor const& means, Tensor const& quats, Tensor const& starts, Tensor const& key_offsets,
                 Tensor const& key_times, Tensor const& translations, Tensor const& quaternions, Tensor const& times) {
    cpu::Actors const in = actors(means, quats, starts, key_offsets, key_times, translations, quaternions, times);
    auto const made = [&](int64_t n, int64_t width) { return at::empty({in.queries, n, width}, means.options()); };
    Tensor to = made(in.n, 3), turned = made(in.n, 4), velocities = made(in.n, 3), rotations = made(in.tracks, 4);
    cpu::move_actors(in, {to.mutable_data_ptr<float>(), turned.mutable_data_ptr<float>(),
                          velocities.mutable_data_ptr<float>(), rotations.mutable_data_ptr<float>()});
    return {to, turned, velocities, rotations};
}

Four move_actors_backward(Tensor const& means, Tensor const& quats, Tensor const& starts, Tensor const& key_offsets,
                          Tensor const& key_times, Tensor const& translations, Tensor const& quaternions,
                          Tensor const& times, Tensor const& d_means, Tensor const& d_quats, Tensor const& d_velocities,
                          Tensor const& d_rotations) {
    cpu::Actors const in = actors(means, quats, starts, key_offsets, key_times, translations, quaternions, times);
    check_moved(means, starts, times, d_means, d_quats, d_velocities, d_rotations);
    Tensor to_means = at::empty_like(means), to_quats = at::empty_like(quats);
    Tensor to_translations = at::empty_like(translations), to_quaternions = at::empty_like(quaternions);
    cpu::move_actors_backward(
        in,
        {d_means.const_data_ptr<float>(), d_quats.const_data_ptr<float>(), d_velocities.const_data_ptr<float>(),
         d_rotations.const_data_ptr<float>(), to_means.mutable_data_ptr<float>(), to_quats.mutable_data_ptr<float>(),
         to_translations.mutable_data_ptr<float>(), to_quaternions.mutable_data_ptr<float>()});
    return {to_means, to_quats, to_translations, to_quaternions};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("move_actors", &move_actors);
    m.impl("move_actors_backward", &move_actors_backward);
}

}  // namespace nurec
