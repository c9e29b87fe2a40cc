// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>

#include "../common/gaussians_cpu.h"
#include "../math/depth.cuh"
#include "project.h"

namespace nurec::cpu {
namespace {

// Counts of occupied cells over three turns side by side, summed over rows and columns, so that chunks may wrap.
class Occupied {
  public:
    explicit Occupied(Cells const& cells) : width_(3 * cells.columns + 1), table_((cells.bands + 1) * width_, 0) {
        std::vector<int> there(cells.bands * cells.columns, 0);
        for (int64_t const cell : cells_of_rays(cells)) there[cell] = 1;
        for (int64_t b = 0; b < cells.bands; ++b) {
            for (int64_t c = 0, row = 0; c < 3 * cells.columns; ++c) {
                row += there[b * cells.columns + c % cells.columns];
                table_[(b + 1) * width_ + c + 1] = table_[b * width_ + c + 1] + row;
            }
        }
    }

    bool any(int64_t low, int64_t high, int64_t first, int64_t last) const {
        return at(high, last) - at(low, last) - at(high, first) + at(low, first) > 0;
    }

  private:
    int64_t at(int64_t band, int64_t column) const { return table_[band * width_ + column]; }

    int64_t width_;
    std::vector<int64_t> table_;
};

// Whether a sphere about a point, seen from the sensor, touches a cell that holds a ray.
bool near_rays(Cells const& cells, Occupied const& occupied, Vec3<float> p, float radius) {
    Place<float> const at = spherical(p);
    float const angle = asinf(std::min(1.2f * radius / std::max(at.depth, 1e-6f), 1.f));
    float around = 1.2f * angle / std::max(cosf(fabsf(at.v) + angle), 1e-6f);  // beyond a pole, all around
    around = angle > 1 ? float(PI) : std::min(around, float(PI));
    int64_t const n = cells.columns;
    int64_t const first = std::clamp<int64_t>(column_of(cells, at.u - around) + n - 1, 0, 3 * n);
    int64_t const last = std::clamp<int64_t>(column_of(cells, at.u + around) + n + 2, 0, 3 * n);
    return occupied.any(band_of(cells, at.v - 1.2f * angle), band_of(cells, at.v + 1.2f * angle) + 1, first, last);
}

struct Entry {
    uint32_t key;
    int64_t gaussian;
    Bounds<float> bounds;
};

// Least significant digit first, so that equal keys keep their order.
void radix_sort(std::vector<uint32_t>& keys, int bits, std::vector<uint32_t>& order) {
    std::vector<uint32_t> other_keys(keys.size()), other(order.size());
    for (int shift = 0; shift < bits; shift += 11) {
        std::array<uint32_t, 2049> start{};
        for (uint32_t const key : keys) ++start[(key >> shift & 2047) + 1];
        for (int d = 0; d < 2048; ++d) start[d + 1] += start[d];
        for (std::size_t i = 0; i < keys.size(); ++i) {
            uint32_t const place = start[keys[i] >> shift & 2047]++;
            other_keys[place] = keys[i], other[place] = order[i];
        }
        keys.swap(other_keys), order.swap(other);
    }
}

// False if no ray can see the Gaussian.
bool look(ProjectParams const& in, int bits, Occupied const* occupied, int64_t i, Entry& out) {
    Gaussians const& g = in.g;
    View<float> const& view = *in.view;
    float const reach = reach_of(g.opacities[i]);
    if (!(reach > 0)) return false;
    WarpOffsets const p = placed(g, i);
    Vec3<float> const mean = p.mean, s = load3(g.scales, i), v = load3(p.velocity, 0);
    Vec3<float> const local = view.motion.at(mean, {0, 0, 0}, 0.5f);
    float radius = reach * larger(s.x, larger(s.y, s.z)) + 0.5f * view.motion.seconds * sqrtf(dot(v, v));
    radius += 0.5f * (view.travel + view.turning * sqrtf(dot(local, local)));
    bool const inside = in.lens        ? in_lens_cone(*in.lens, local, radius)
                        : in.is_camera ? in_cone(view.camera, local, radius)
                                       : near_rays(in.cells, *occupied, local, radius);
    if (!inside) return false;
    Quat<float> const q = load_quat(p.quat, 0);
    out.gaussian = i;
    out.bounds = in.lens        ? lens_bounds(view.camera, *in.lens, view.motion, mean, q, s, v, reach)
                 : in.is_camera ? camera_bounds(view.camera, view.motion, mean, q, s, v, reach)
                                : lidar_bounds(view.lidar, view.motion, mean, q, s, v, reach);
    float const depth = in.lens        ? lens_depth(*in.lens, mean, view.forward)
                        : in.is_camera ? dot(mean, view.forward)
                                       : sqrtf(dot(mean, mean));
    out.key = bits < DEPTH_BITS ? short_depth_key(depth, bits) : depth_key(depth);
    return true;
}

}  // namespace

Projection project(ProjectParams const& in, int bits) {
    std::optional<Occupied> const occupied = in.is_camera ? std::nullopt : std::optional<Occupied>(in.cells);
    constexpr int64_t BLOCK = 1024;
    int64_t const n_blocks = (in.g.n + BLOCK - 1) / BLOCK;
    std::vector<std::vector<Entry>> blocks(n_blocks);
#pragma omp parallel for schedule(dynamic, 1)
    for (int64_t b = 0; b < n_blocks; ++b) {
        Entry entry;
        for (int64_t i = b * BLOCK; i < std::min(in.g.n, (b + 1) * BLOCK); ++i)
            if (look(in, bits, occupied ? &*occupied : nullptr, i, entry)) blocks[b].push_back(entry);
    }
    std::vector<Entry> all;
    for (auto const& block : blocks) all.insert(all.end(), block.begin(), block.end());
    std::vector<uint32_t> keys(all.size()), order(all.size());
    for (std::size_t i = 0; i < all.size(); ++i) keys[i] = all[i].key, order[i] = i;
    radix_sort(keys, bits, order);
    Projection out;
    out.index.resize(all.size()), out.bounds.resize(all.size());
    for (std::size_t i = 0; i < all.size(); ++i)
        out.index[i] = all[order[i]].gaussian, out.bounds[i] = all[order[i]].bounds;
    return out;
}

}  // namespace nurec::cpu
