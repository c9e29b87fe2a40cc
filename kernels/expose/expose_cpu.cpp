// SPDX-License-Identifier: Apache-2.0
// Sums are those of rows, added in their order: the number of threads changes nothing.
#include <vector>

#include "../common/triples_cpu.h"
#include "params.h"

namespace nurec::cpu {
namespace {

struct RowSums {
    double of[EXPOSURE_NUMBERS] = {};

    void add(Exposure<float> const& one) {
        Vec3<float> const a = one.log_gain, b = one.offset, c = one.vignetting;
        float const numbers[EXPOSURE_NUMBERS] = {a.x, a.y, a.z, b.x, b.y, b.z, c.x, c.y, c.z};
        for (int k = 0; k < EXPOSURE_NUMBERS; ++k) of[k] += numbers[k];
    }
};

RowSums row_backward(ExposedImage const& in, Exposure<float> const& by, ExposedGrads const& d, int row) {
    RowSums sums;
    for (int column = 0; column < in.width; ++column) {
        int64_t const i = in.pixel(column, row);
        Exposure<float> own = {};
        store(d.image, i, exposed_by_backward(by, in.radial(column, row), load(in.image, i), load(d.exposed, i), own));
        sums.add(own);
    }
    return sums;
}

}  // namespace

void expose(ExposedImage const& in, float* exposed) {
    Exposure<float> const by = in.exposure();
#pragma omp parallel for schedule(static)
    for (int row = 0; row < in.height; ++row)
        for (int column = 0; column < in.width; ++column) {
            int64_t const i = in.pixel(column, row);
            store(exposed, i, exposed_by(by, in.radial(column, row), load(in.image, i)));
        }
}

void expose_backward(ExposedImage const& in, ExposedGrads const& d) {
    Exposure<float> const by = in.exposure();
    std::vector<RowSums> rows(std::size_t(in.height));
#pragma omp parallel for schedule(static)
    for (int row = 0; row < in.height; ++row) rows[std::size_t(row)] = row_backward(in, by, d, row);
    RowSums all;
    for (RowSums const& one : rows)
        for (int k = 0; k < EXPOSURE_NUMBERS; ++k) all.of[k] += one.of[k];
    for (int k = 0; k < EXPOSURE_NUMBERS; ++k)
        if (float* const to = d.numbers[k / 3]) to[k % 3] = float(all.of[k]);
}

}  // namespace nurec::cpu
