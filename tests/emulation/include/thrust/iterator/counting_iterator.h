// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace thrust {

template <class T>
class counting_iterator {
  public:
    explicit counting_iterator(T first) : first_(first) {}

    template <class Count>
    T operator[](Count k) const {
        return first_ + T(k);
    }

  private:
    T first_;
};

}  // namespace thrust
