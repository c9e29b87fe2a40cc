// SPDX-License-Identifier: Apache-2.0
// Binding of nurec_lite::simulate_pixels and ::simulate_echoes: checks and allocation, for the CPU and for CUDA.
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "../common/torch_check.h"
#include "street.h"

#ifdef NUREC_CUDA
#include "../common/torch_site.h"
#endif

namespace nurec {
namespace {

constexpr int64_t TONE = 7;  // gains, offsets, noise

template <class T, class Struct>
Struct const* rows(at::Tensor const& t, char const* name, int64_t n, at::Device device) {
    constexpr auto type = std::is_same_v<T, double> ? at::kDouble : std::is_same_v<T, float> ? at::kFloat : at::kInt;
    check_tensor(t, name, type, {n, int64_t(sizeof(Struct) / sizeof(T))}, device);
    return reinterpret_cast<Struct const*>(t.const_data_ptr<T>());
}

// `world`: solids, kinds, boxes, nodes, order, cars, reach. `motion`: rotations and positions of the sensor, then those
// of owners.
template <class T>
Street<T> street_of(at::TensorList world, at::TensorList motion, double spread, int64_t seed) {
    check_group(world, "world", 7, "solids, kinds, boxes, nodes, order, cars, reach");
    check_group(motion, "motion", 4, "rotations, positions, owner_rotations, owner_positions");
    constexpr auto real = std::is_same_v<T, double> ? at::kDouble : at::kFloat;
    auto const device = world[0].device();
    int64_t const solids = world[0].size(0), nodes = world[2].size(0), cars = world[5].size(0), s = motion[0].size(0);
    check_tensor(world[4], "order", at::kInt, {-1}, device);
    check_tensor(world[6], "reach", real, {cars}, device);
    check_tensor(motion[0], "rotations", at::kDouble, {-1, 3, 3}, device);
    check_tensor(motion[1], "positions", at::kDouble, {s, 3}, device);
    check_tensor(motion[2], "owner_rotations", real, {s, cars + 1, 3, 3}, device);
    check_tensor(motion[3], "owner_positions", real, {s, cars + 1, 3}, device);
    check_tensor(world[1], "kinds", at::kInt, {solids, 3}, device);
    check_range(world[1].select(1, 0).contiguous(), "faces", 0, FACES + 1);
    check_range(world[1].select(1, 2).contiguous(), "owners", 0, cars + 1);
    check_range(world[4], "order", 0, solids);
    check_range(world[5], "cars", 0, solids + 1);
    check_range(world[3], "nodes", 0, nodes + world[4].size(0) + 1);
    return {rows<T, Solid<T>>(world[0], "solids", solids, device),
            rows<int32_t, SolidKind>(world[1], "kinds", solids, device),
            rows<T, Box<T>>(world[2], "boxes", nodes, device),
            rows<int32_t, Node>(world[3], "nodes", nodes, device),
            nodes,
            world[4].const_data_ptr<int32_t>(),
            rows<int32_t, RowRange>(world[5], "cars", cars, device),
            world[6].const_data_ptr<T>(),
            cars + 1,
            motion[0].const_data_ptr<double>(),
            motion[1].const_data_ptr<double>(),
            motion[2].const_data_ptr<T>(),
            motion[3].const_data_ptr<T>(),
            T(spread),
            uint32_t(seed)};
}

void check_slots(at::Tensor const& slots, int64_t n, at::Tensor const& rotations) {
    check_tensor(slots, "slots", at::kLong, {n}, rotations.device());
    check_range(slots, "slots", 0, rotations.size(0));
}

// `cast` is the device's driver.
template <class Cast>
at::Tensor pixels_by(Cast const& cast, at::TensorList world, at::TensorList motion, at::Tensor const& directions,
                     at::Tensor const& slots, double spread, int64_t seed, at::Tensor const& tone, int64_t first) {
    auto const street = street_of<float>(world, motion, spread, seed);
    check_tensor(directions, "directions", at::kDouble, {-1, -1, 3}, world[0].device());
    check_slots(slots, directions.size(0), motion[0]);
    check_tensor(tone, "tone", at::kInt, {TONE + 1}, world[0].device());
    at::Tensor pixels = at::empty({directions.size(0), 3}, directions.options().dtype(at::kByte));
    cast(street, PixelParams{directions.size(0), first, directions.size(1), directions.const_data_ptr<double>(),
                             slots.const_data_ptr<int64_t>(), reinterpret_cast<Tone const*>(tone.const_data_ptr()),
                             pixels.mutable_data_ptr<uint8_t>()});
    return pixels;
}

template <class Cast>
at::Tensor echoes_by(Cast const& cast, at::TensorList world, at::TensorList motion, at::Tensor const& directions,
                     at::Tensor const& slots, double spread, int64_t seed) {
    auto const street = street_of<double>(world, motion, spread, seed);
    check_tensor(directions, "directions", at::kDouble, {-1, 3}, world[0].device());
    check_slots(slots, directions.size(0), motion[0]);
    at::Tensor echoes = at::empty({directions.size(0), 2}, directions.options());
    cast(street, EchoParams{directions.size(0), directions.const_data_ptr<double>(), slots.const_data_ptr<int64_t>(),
                            echoes.mutable_data_ptr<double>()});
    return echoes;
}

using at::Tensor;
using at::TensorList;

#ifdef NUREC_CUDA

Tensor simulate_pixels(TensorList world, TensorList motion, Tensor const& directions, Tensor const& slots,
                       double spread, int64_t seed, Tensor const& tone, int64_t first) {
    Site site(directions.device());
    auto const launch = [&](Street<float> const& street, PixelParams const& p) {
        cuda::simulate_pixels(street, p, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return pixels_by(launch, world, motion, directions, slots, spread, seed, tone, first);
}

Tensor simulate_echoes(TensorList world, TensorList motion, Tensor const& directions, Tensor const& slots,
                       double spread, int64_t seed) {
    Site site(directions.device());
    auto const launch = [&](Street<double> const& street, EchoParams const& p) {
        cuda::simulate_echoes(street, p, site.queue());
        C10_CUDA_KERNEL_LAUNCH_CHECK();
    };
    return echoes_by(launch, world, motion, directions, slots, spread, seed);
}

#else

Tensor simulate_pixels(TensorList world, TensorList motion, Tensor const& directions, Tensor const& slots,
                       double spread, int64_t seed, Tensor const& tone, int64_t first) {
    return pixels_by(&cpu::simulate_pixels, world, motion, directions, slots, spread, seed, tone, first);
}

Tensor simulate_echoes(TensorList world, TensorList motion, Tensor const& directions, Tensor const& slots,
                       double spread, int64_t seed) {
    return echoes_by(&cpu::simulate_echoes, world, motion, directions, slots, spread, seed);
}

#endif

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, NUREC_DEVICE, m) {
    m.impl("simulate_pixels", &simulate_pixels);
    m.impl("simulate_echoes", &simulate_echoes);
}

}  // namespace nurec
