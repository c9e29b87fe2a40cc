// SPDX-License-Identifier: Apache-2.0
// nurec_lite::move_actors on the CPU.
#include <torch/library.h>

#include "torch_move_actors.h"

namespace nurec {
namespace {

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

}  // namespace

TORCH_LIBRARY_IMPL(nurec_lite, CPU, m) {
    m.impl("move_actors", &move_actors);
    m.impl("move_actors_backward", &move_actors_backward);
}

}  // namespace nurec
