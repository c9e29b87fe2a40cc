// SPDX-License-Identifier: Apache-2.0
// Rays that fall on one texel add to one number, so slices of the rays have maps of their own, which are added in their
// order: the number of threads changes nothing.
#include <algorithm>
#include <vector>

#include "../common/triples_cpu.h"
#include "sky.h"

namespace nurec::cpu {
namespace {

constexpr int64_t RAYS = 1 << 13;  // of a slice, at least
constexpr int64_t SLICES = 16;     // at most

// A map must be worth its memory: its numbers are at most four times its slice's rays.
int64_t slices_of(SkyRays const& in) {
    int64_t const numbers = 3 * int64_t(in.texels());
    return std::clamp<int64_t>(std::min(in.n / RAYS, 4 * in.n / numbers), 1, SLICES);
}

void add_to_map(SkyPlace<float> const& at, Vec3<float> d, int texels, float* sky) {
    for (int corner = 0; corner < 4; ++corner) {
        float* const texel = sky + at.texel(corner);
        float const weight = at.weight(corner);
        texel[0] += weight * d.x, texel[texels] += weight * d.y, texel[2 * texels] += weight * d.z;
    }
}

void backward(SkyRays const& in, SkyGrads const& d, int64_t begin, int64_t end, float* sky) {
    for (int64_t i = begin; i < end; ++i) {
        SkyPlace<float> const at = sky_place(load(in.directions, i), in.height, in.width);
        Vec3<float> const colour = sky_colour(in.sky, in.texels(), at);
        SkyGrad<float> const found = sky_backward(colour, in.transmittance[i], load(d.image, i));
        d.transmittance[i] = found.transmittance;
        add_to_map(at, found.logits, in.texels(), sky);
    }
}

}  // namespace

void over_sky(SkyRays const& in, float const* features, float* image) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < in.n; ++i) {
        SkyPlace<float> const at = sky_place(load(in.directions, i), in.height, in.width);
        store(image, i, load(features, i) + in.transmittance[i] * sky_colour(in.sky, in.texels(), at));
    }
}

void over_sky_backward(SkyRays const& in, SkyGrads const& d) {
    int64_t const slices = slices_of(in), numbers = 3 * int64_t(in.texels());
    std::vector<float> others(std::size_t((slices - 1) * numbers));
    std::fill_n(d.sky, numbers, 0.f);
#pragma omp parallel for schedule(static)
    for (int64_t s = 0; s < slices; ++s) {
        float* const map = s ? others.data() + (s - 1) * numbers : d.sky;
        backward(in, d, s * in.n / slices, (s + 1) * in.n / slices, map);
    }
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < numbers; ++k)
        for (int64_t s = 0; s + 1 < slices; ++s) d.sky[k] += others[std::size_t(s * numbers + k)];
}

}  // namespace nurec::cpu
