// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>

namespace thrust {

template <class Function, class T>
class transform_iterator {
  public:
    using value_type = decltype(std::declval<Function>()(std::declval<T>()));
    using difference_type = int64_t;
    using pointer = value_type const*;
    using reference = value_type;
    using iterator_category = std::input_iterator_tag;

    transform_iterator(T const* in, Function function) : in_(in), function_(function) {}
    auto operator[](int64_t k) const { return function_(in_[k]); }

  private:
    T const* in_;
    Function function_;
};

template <class T, class Function>
transform_iterator(T const*, Function) -> transform_iterator<Function, T>;

}  // namespace thrust
