// SPDX-License-Identifier: Apache-2.0
// nurec_lite::move_actors on CUDA.
#include <torch/library.h>

#include "../common/torch_aligned.h"
#include "../common/torch_site.h"
#include "torch_move_actors.h"

namespace nurec {
namespace {

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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CUDA, m) {
    m.impl("move_actors", &move_actors);
    m.impl("move_actors_backward", &move_actors_backward);
}

}  // namespace nurec
