// SPDX-License-Identifier: Apache-2.0
// A block of rows of one track at a time. Gradients of poses are added up in each block, then over a track's blocks in
// their order: the same sums with any number of threads.
#include <algorithm>
#include <vector>

#include "../math/actors.cuh"
#include "move_actors.h"

namespace nurec::cpu {
namespace {

using Poses = std::vector<MovingPose<float>>;

constexpr int64_t SIZE = 256;  // rows of a block

struct Block {
    int64_t track, begin, end;  // rows
};

Vec3<float> load3(float const* a, int64_t i) {
    return {a[3 * i], a[3 * i + 1], a[3 * i + 2]};
}

Quat<float> load4(float const* a, int64_t i) {
    return {a[4 * i], a[4 * i + 1], a[4 * i + 2], a[4 * i + 3]};
}

void store3(float* a, int64_t i, Vec3<float> v) {
    a[3 * i] = v.x, a[3 * i + 1] = v.y, a[3 * i + 2] = v.z;
}

void store4(float* a, int64_t i, Quat<float> q) {
    a[4 * i] = q.w, a[4 * i + 1] = q.x, a[4 * i + 2] = q.y, a[4 * i + 3] = q.z;
}

Block block_at(Actors const& in, int64_t b) {
    int64_t const k = track_of_block(in.starts, in.tracks, b, SIZE), first = (b - k) * SIZE;
    return {k, std::max(in.starts[k], first), std::min(in.starts[k + 1], first + SIZE)};
}

Keys find_keys(Actors const& in, int64_t track, int64_t query) {
    int64_t const begin = in.key_offsets[track], end = in.key_offsets[track + 1];
    double const *first = in.key_times + begin, time = in.times[query];
    return keys_around(in.key_times, begin, end, std::upper_bound(first, in.key_times + end, time) - first, time);
}

Pose<float> key_pose(Actors const& in, int64_t key) {
    return {load4(in.quaternions, key), load3(in.translations, key)};
}

bool has_keys(Actors const& in, int64_t track) {
    return in.key_offsets[track] < in.key_offsets[track + 1];
}

MovingPose<float> find_pose(Actors const& in, int64_t track, int64_t query) {
    if (!has_keys(in, track)) return {{1, 0, 0, 0}, {}, {}, {}};
    Keys const keys = find_keys(in, track, query);
    return pose_at(key_pose(in, keys.before), key_pose(in, keys.after), float(keys.fraction), float(keys.rate));
}

Poses find_poses(Actors const& in) {  // [Q, K]
    Poses poses(in.queries * in.tracks);
    for (int64_t i = 0; i < in.queries * in.tracks; ++i) poses[i] = find_pose(in, i % in.tracks, i / in.tracks);
    return poses;
}

void move_block(Actors const& in, Poses const& poses, Block block, MovedActors const& out) {
    for (int64_t q = 0; q < in.queries; ++q) {
        MovingPose<float> const pose = poses[q * in.tracks + block.track];
        for (int64_t i = block.begin; i < block.end; ++i) {
            Moved<float> const to = moved(pose, load3(in.means, i), load4(in.quats, i));
            store3(out.means, q * in.n + i, to.mean);
            store4(out.quats, q * in.n + i, to.quat);
            store3(out.velocities, q * in.n + i, to.velocity);
        }
    }
}

// Row i at all times; adds the gradients of its block's poses to [Q] sums.
void move_row_backward(Actors const& in, Poses const& poses, int64_t track, int64_t i, ActorGrads const& d,
                       MovingPose<float>* sums) {
    Vec3<float> const mean = load3(in.means, i);
    Quat<float> const quat = load4(in.quats, i);
    Vec3<float> d_mean = {};
    Quat<float> d_quat = {};
    for (int64_t q = 0; q < in.queries; ++q) {
        int64_t const at = q * in.n + i;
        Moved<float> const slope = {load3(d.d_means, at), load4(d.d_quats, at), load3(d.d_velocities, at)};
        MovedGrad<float> const g = moved_backward(poses[q * in.tracks + track], mean, quat, slope);
        d_mean = d_mean + g.mean, d_quat = d_quat + g.quat;
        sums[q] = sums[q] + g.pose;
    }
    store3(d.means, i, d_mean);
    store4(d.quats, i, d_quat);
}

void add_pose(ActorGrads const& d, int64_t key, Pose<float> const& g) {
    store3(d.translations, key, load3(d.translations, key) + g.t);
    store4(d.quaternions, key, load4(d.quaternions, key) + g.q);
}

// To the keyframes of one track, from the sums of its blocks.
void finish_track(Actors const& in, int64_t k, Poses const& sums, ActorGrads const& d) {
    int64_t const begin = in.starts[k], first = first_block(begin, k, SIZE);
    int64_t const blocks = blocks_with_rows(begin, in.starts[k + 1], SIZE);
    for (int64_t key = in.key_offsets[k]; key < in.key_offsets[k + 1]; ++key)
        store3(d.translations, key, {0, 0, 0}), store4(d.quaternions, key, {0, 0, 0, 0});
    for (int64_t q = 0; q < in.queries && has_keys(in, k); ++q) {
        MovingPose<float> sum = {load4(d.d_rotations, q * in.tracks + k), {}, {}, {}};
        for (int64_t b = first; b < first + blocks; ++b) sum = sum + sums[b * in.queries + q];
        Keys const keys = find_keys(in, k, q);
        PosePair<float> const g = pose_at_backward(key_pose(in, keys.before), key_pose(in, keys.after),
                                                   float(keys.fraction), float(keys.rate), sum);
        add_pose(d, keys.before, g.a);
        add_pose(d, keys.after, g.b);
    }
}

}  // namespace

void move_actors(Actors const& in, MovedActors const& out) {
    Poses const poses = find_poses(in);
    for (std::size_t i = 0; i < poses.size(); ++i) store4(out.rotations, int64_t(i), poses[i].q);
    int64_t const blocks = in.tracks ? first_block(in.n, in.tracks, SIZE) : 0;
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) move_block(in, poses, block_at(in, b), out);
}

void move_actors_backward(Actors const& in, ActorGrads const& d) {
    Poses const poses = find_poses(in);
    int64_t const blocks = in.tracks ? first_block(in.n, in.tracks, SIZE) : 0;
    Poses sums(blocks * in.queries);
#pragma omp parallel for schedule(static)
    for (int64_t b = 0; b < blocks; ++b) {
        Block const block = block_at(in, b);
        for (int64_t i = block.begin; i < block.end; ++i)
            move_row_backward(in, poses, block.track, i, d, sums.data() + b * in.queries);
    }
#pragma omp parallel for schedule(static)
    for (int64_t k = 0; k < in.tracks; ++k) finish_track(in, k, sums, d);
}

}  // namespace nurec::cpu
