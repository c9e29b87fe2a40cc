// SPDX-License-Identifier: Apache-2.0
// nurec_lite::move_actors on CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "params.h"
#include "torch_move_actors.h"
#include "../common/torch_cuda_memory.h"

namespace nurec {
namespace {

using at::Tensor;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;

constexpr int64_t VECTOR = 16;  // bytes that are loaded together

bool is_aligned(Tensor const& t) {
    return reinterpret_cast<uintptr_t>(t.const_data_ptr()) % VECTOR == 0;
}

void check_aligned(Tensor const& t, char const* name) {
    TORCH_CHECK_VALUE(is_aligned(t), name, " does not start on a multiple of ", VECTOR, " bytes; call .clone()");
}

// A gradient that autograd cut out of a larger one may start anywhere.
Tensor aligned(Tensor const& t) {
    return is_aligned(t) ? t : t.clone();
}

cuda::Actors actors(Tensor const& means, Tensor const& quats, Tensor const& starts, Tensor const& key_offsets,
                    Tensor const& key_times, Tensor const& translations, Tensor const& quaternions,
                    Tensor const& times) {
    check_actors(means, quats, starts, key_offsets, key_times, translations, quaternions, times);
    check_aligned(quats, "quats");
    check_aligned(quaternions, "quaternions");
    return {means.size(0),
            starts.size(0) - 1,
            key_times.size(0),
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
    c10::cuda::CUDAGuard const guard(means.device());
    cuda::Actors const in = actors(means, quats, starts, key_offsets, key_times, translations, quaternions, times);
    auto const made = [&](int64_t n, int64_t width) { return at::empty({in.queries, n, width}, means.options()); };
    Tensor to = made(in.n, 3), turned = made(in.n, 4), velocities = made(in.n, 3), rotations = made(in.tracks, 4);
    cuda::move_actors(in,
                      {to.mutable_data_ptr<float>(), turned.mutable_data_ptr<float>(),
                       velocities.mutable_data_ptr<float>(), rotations.mutable_data_ptr<float>()},
                      c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {to, turned, velocities, rotations};
}

Four move_actors_backward(Tensor const& means, Tensor const& quats, Tensor const& starts, Tensor const& key_offsets,
                          Tensor const& key_times, Tensor const& translations, Tensor const& quaternions,
                          Tensor const& times, Tensor const& d_means, Tensor const& d_quats, Tensor const& d_velocities,
                          Tensor const& d_rotations) {
    c10::cuda::CUDAGuard const guard(means.device());
    Memory memory(means.device());
    cuda::Actors const in = actors(means, quats, starts, key_offsets, key_times, translations, quaternions, times);
    check_moved(means, starts, times, d_means, d_quats, d_velocities, d_rotations);
    Tensor to_means = at::empty_like(means), to_quats = at::empty_like(quats);
    Tensor to_translations = at::empty_like(translations), to_quaternions = at::empty_like(quaternions);
    Tensor const quat_grads = aligned(d_quats), rotation_grads = aligned(d_rotations);
    cuda::move_actors_backward(
        in,
        {d_means.const_data_ptr<float>(), quat_grads.const_data_ptr<float>(), d_velocities.const_data_ptr<float>(),
         rotation_grads.const_data_ptr<float>(), to_means.mutable_data_ptr<float>(), to_quats.mutable_data_ptr<float>(),
         to_translations.mutable_data_ptr<float>(), to_quaternions.mutable_data_ptr<float>()},
        memory.allocator(), c10::cuda::getCurrentCUDAStream());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {to_means, to_quats, to_translations, to_quaternions};
}

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("move_actors", &move_actors);
    m.impl("move_actors_backward", &move_actors_backward);
}

}  // namespace nurec
