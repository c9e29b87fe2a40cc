// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::move_actors and ::move_actors_backward: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <cmath>
#include <tuple>

#include "../common/torch_check.h"
#include "move_actors.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

// Row numbers 0 = offsets[0] <= offsets[1] <= ... <= offsets[K] = n.
void check_rows(at::Tensor const& offsets, char const* name, int64_t n) {
    auto const host = values_of(offsets);
    if (!host) return;
    auto const* rows = host->const_data_ptr<int64_t>();
    auto const last = host->numel() - 1;
    TORCH_CHECK_VALUE(rows[0] == 0 && rows[last] == n, name, " goes from ", rows[0], " to ", rows[last],
                      ", but must go from 0 to ", n);
    for (int64_t k = 0; k < last; ++k)
        TORCH_CHECK_VALUE(rows[k + 1] >= rows[k], name, " gives track ", k, " ", rows[k + 1] - rows[k],
                          " rows, but it must have at least 0");
}

void check_times(at::Tensor const& times, char const* name) {
    auto const host = values_of(times);
    if (!host) return;
    auto const* values = host->const_data_ptr<double>();
    for (int64_t i = 0; i < host->numel(); ++i)
        TORCH_CHECK_VALUE(std::isfinite(values[i]), name, " holds ", values[i], " in row ", i, ", but must be finite");
}

void check_key_times(at::Tensor const& key_times, at::Tensor const& key_offsets) {
    check_times(key_times, "key_times");
    auto const times = values_of(key_times), offsets = values_of(key_offsets);
    if (!times) return;
    auto const* values = times->const_data_ptr<double>();
    auto const* rows = offsets->const_data_ptr<int64_t>();
    for (int64_t k = 0; k + 1 < offsets->numel(); ++k)
        for (int64_t i = rows[k] + 1; i < rows[k + 1]; ++i)
            TORCH_CHECK_VALUE(values[i] > values[i - 1], "key_times of track ", k, " do not rise in row ", i);
}

struct ActorTensors {
    at::Tensor const &means, &quats, &starts, &key_offsets, &key_times, &translations, &quaternions, &times;
};

// The tensors of nurec_lite.native.operators.move_actors.ActorArrays.
ActorTensors actors_of(at::TensorList t) {
    check_group(t, "actors", 8, "means, quats, starts, key_offsets, key_times, translations, quaternions, times");
    return {t[0], t[1], t[2], t[3], t[4], t[5], t[6], t[7]};
}

void check_shapes(ActorTensors const& a) {
    auto const device = a.means.device();
    check_tensor(a.means, "means", at::kFloat, {-1, 3}, device);
    auto const n = a.means.size(0);
    check_tensor(a.quats, "quats", at::kFloat, {n, 4}, device);
    check_tensor(a.starts, "starts", at::kLong, {-1}, device);
    TORCH_CHECK_VALUE(a.starts.size(0) > 0, "starts is empty, but must have a row more than there are tracks");
    auto const k = a.starts.size(0) - 1;
    check_tensor(a.key_offsets, "key_offsets", at::kLong, {k + 1}, device);
    check_tensor(a.key_times, "key_times", at::kDouble, {-1}, device);
    auto const m = a.key_times.size(0);
    TORCH_CHECK_VALUE(k > 0 || (n == 0 && m == 0), "there are ", n, " Gaussians and ", m, " keyframes of no track");
    check_tensor(a.translations, "translations", at::kFloat, {m, 3}, device);
    check_tensor(a.quaternions, "quaternions", at::kFloat, {m, 4}, device);
    check_tensor(a.times, "times", at::kDouble, {-1}, device);
}

void check_actors(ActorTensors const& a) {
    check_shapes(a);
    check_finite(a.means, "means");
    check_finite(a.quats, "quats");
    check_rows(a.starts, "starts", a.means.size(0));
    check_rows(a.key_offsets, "key_offsets", a.key_times.size(0));
    check_key_times(a.key_times, a.key_offsets);
    check_finite(a.translations, "translations");
    check_finite(a.quaternions, "quaternions");
    check_times(a.times, "times");
}

Actors arrays_of(ActorTensors const& a) {
    return {a.means.size(0),
            a.starts.size(0) - 1,
            a.key_times.size(0),
            a.times.size(0),
            a.means.const_data_ptr<float>(),
            a.quats.const_data_ptr<float>(),
            a.starts.const_data_ptr<int64_t>(),
            a.key_offsets.const_data_ptr<int64_t>(),
            a.key_times.const_data_ptr<double>(),
            a.translations.const_data_ptr<float>(),
            a.quaternions.const_data_ptr<float>(),
            a.times.const_data_ptr<double>()};
}

// Moved Gaussians, or gradients of them.
struct MovedTensors {
    at::Tensor means, quats, velocities, rotations;
};

MovedTensors empty_moved(ActorTensors const& a) {
    auto const n = a.means.size(0), k = a.starts.size(0) - 1, q = a.times.size(0);
    auto const made = [&](int64_t rows, int64_t width) { return at::empty({q, rows, width}, a.means.options()); };
    return {made(n, 3), made(n, 4), made(n, 3), made(k, 4)};
}

MovedActors written(MovedTensors const& t) {
    return {t.means.mutable_data_ptr<float>(), t.quats.mutable_data_ptr<float>(),
            t.velocities.mutable_data_ptr<float>(), t.rotations.mutable_data_ptr<float>()};
}

// The tensors of nurec_lite.native.operators.move_actors.MovedGrads.
MovedTensors moved_grads_of(at::TensorList t, ActorTensors const& a) {
    check_group(t, "d_moved", 4, "d_means, d_quats, d_velocities, d_rotations");
    auto const n = a.means.size(0), k = a.starts.size(0) - 1, q = a.times.size(0);
    auto const check = [&](at::Tensor const& one, char const* name, std::initializer_list<int64_t> shape) {
        check_tensor(one, name, at::kFloat, shape, a.means.device());
        check_finite(one, name);
    };
    check(t[0], "d_means", {q, n, 3});
    check(t[1], "d_quats", {q, n, 4});
    check(t[2], "d_velocities", {q, n, 3});
    check(t[3], "d_rotations", {q, k, 4});
    return {t[0], t[1], t[2], t[3]};
}

using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// Gradients of means, quats, translations and quaternions, by the device's driver.
template <class Backward>
Four actor_gradients_by(Backward const& backward, ActorTensors const& a, MovedTensors const& d) {
    auto const like = [](at::Tensor const& t) { return at::empty_like(t); };
    at::Tensor const means = like(a.means), quats = like(a.quats);
    at::Tensor const translations = like(a.translations), quaternions = like(a.quaternions);
    backward(arrays_of(a), ActorGrads{d.means.const_data_ptr<float>(), d.quats.const_data_ptr<float>(),
                                      d.velocities.const_data_ptr<float>(), d.rotations.const_data_ptr<float>(),
                                      means.mutable_data_ptr<float>(), quats.mutable_data_ptr<float>(),
                                      translations.mutable_data_ptr<float>(), quaternions.mutable_data_ptr<float>()});
    return {means, quats, translations, quaternions};
}

#ifdef NUREC_CUDA

using at::Tensor;

ActorTensors checked(at::TensorList actors) {
    ActorTensors const in = actors_of(actors);
    check_actors(in);
    check_aligned(in.quats, "quats");
    check_aligned(in.quaternions, "quaternions");
    return in;
}

Four move_actors(at::TensorList actors) {
    ActorTensors const in = checked(actors);
    Site site(in.means.device());
    MovedTensors const out = empty_moved(in);
    cuda::move_actors(arrays_of(in), written(out), site.queue());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return {out.means, out.quats, out.velocities, out.rotations};
}

Four move_actors_backward(at::TensorList actors, at::TensorList d_moved) {
    ActorTensors const in = checked(actors);
    Site site(in.means.device());
    MovedTensors d = moved_grads_of(d_moved, in);
    d.quats = aligned(d.quats), d.rotations = aligned(d.rotations);
    auto const launch = [&](Actors const& given, ActorGrads const& grads) {
        cuda::move_actors_backward(given, grads, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return actor_gradients_by(launch, in, d);
}

#else

Four move_actors(at::TensorList actors) {
    ActorTensors const in = actors_of(actors);
    check_actors(in);
    MovedTensors const out = empty_moved(in);
    cpu::move_actors(arrays_of(in), written(out));
    return {out.means, out.quats, out.velocities, out.rotations};
}

Four move_actors_backward(at::TensorList actors, at::TensorList d_moved) {
    ActorTensors const in = actors_of(actors);
    check_actors(in);
    return actor_gradients_by(&cpu::move_actors_backward, in, moved_grads_of(d_moved, in));
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("move_actors", &move_actors);
    m.impl("move_actors_backward", &move_actors_backward);
}

}  // namespace nurec
