// SPDX-License-Identifier: Apache-2.0
// Types of the adapters: every number is a double.
#pragma once

#include "../../../kernels/math/lens.cuh"
#include "../../../kernels/math/project.cuh"
#include "../../../kernels/math/rays.cuh"
#include "rows.h"

namespace nurec::testing {

using D = double;
using V = Vec3<D>;
using Q = Quat<D>;
using M = Mat3<D>;
using F = Frame<D>;
using Camera = CameraModel<D>;
using Lidar = LidarModel<D>;
using LensD = Lens<D>;

template <int n>
struct Array {
    D a[n];
};

struct Seven {
    Place<D> at[7];
};

}  // namespace nurec::testing
