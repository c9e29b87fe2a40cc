// SPDX-License-Identifier: Apache-2.0
// Sums are those of rows, added in their order: the number of threads changes nothing.
#include <vector>

#include "expose.h"

namespace nurec::cpu {
namespace {

struct RowSums {
    double of[EXPOSURE_NUMBERS] = {};
};

RowSums row_backward(ExposedImage const& in, ExposedGrads const& d, int row) {
    RowSums sums;
    for (int channel = 0; channel < EXPOSED_CHANNELS; ++channel) {
        Exposure<float> const by = in.exposure(channel);
        for (int column = channel; column < in.columns(); column += EXPOSED_CHANNELS) {
            int64_t const i = in.place(column, row);
            Exposure<float> own = {};
            d.image[i] = exposed_by_backward(by, in.radial(column, row), in.image[i], d.exposed[i], own);
            add_channel(own, channel, sums.of);
        }
    }
    return sums;
}

}  // namespace

void expose(ExposedImage const& in, float* exposed) {
    Exposure<float> const by[] = {in.exposure(0), in.exposure(1), in.exposure(2)};
#pragma omp parallel for schedule(static)
    for (int row = 0; row < in.height; ++row)
        for (int column = 0; column < in.columns(); ++column) {
            int64_t const i = in.place(column, row);
            exposed[i] = exposed_by(by[column % EXPOSED_CHANNELS], in.radial(column, row), in.image[i]);
        }
}

void expose_backward(ExposedImage const& in, ExposedGrads const& d) {
    std::vector<RowSums> rows(std::size_t(in.height));
#pragma omp parallel for schedule(static)
    for (int row = 0; row < in.height; ++row) rows[std::size_t(row)] = row_backward(in, d, row);
    RowSums all;
    for (RowSums const& one : rows)
        for (int k = 0; k < EXPOSURE_NUMBERS; ++k) all.of[k] += one.of[k];
    for (int k = 0; k < d.numbers(); ++k) *d.number(k) = float(all.of[k]);
}

}  // namespace nurec::cpu
