// SPDX-License-Identifier: Apache-2.0
// The backward passes that render_backward.cu chooses from. Their memory is allocated.
#pragma once

#include "rows.cuh"

namespace nurec::cuda {

// Backward pass with one kernel for both sensors.
void shared_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, cudaStream_t stream);

// From moments to the gradients of the Gaussians' parameters.
void finish_moments(Staged const& p, GradSums const& d, cudaStream_t stream);

// Backward pass with a kernel for each sensor.
void split_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan plan,
                    cudaStream_t stream);
void camera_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan plan,
                     cudaStream_t stream);
void lidar_backward(Staged const& p, RenderOutputs const& out, GradSums const& d, BackwardPlan plan,
                    cudaStream_t stream);

}  // namespace nurec::cuda
