// A sum with twice the digits of a double, so that neither its order nor what cancels in it is seen in the result.
#pragma once

#include <cmath>

namespace onebatch {

/// The sum is high + low, without rounding between the two (Dekker, "A floating-point technique for extending the
/// available precision", 1971; Knuth's sum of two numbers).
struct WideSum {
  double high = 0.0;
  double low = 0.0;

  void add(double value) {
    const double sum = high + value;
    if (!std::isfinite(sum)) return become(sum);
    const double of_value = sum - high;
    low += (high - (sum - of_value)) + (value - of_value);
    high = sum;
    settle();
  }
  void add(const WideSum& other) {
    add(other.high);
    low += other.low;
    settle();
  }
  /// a * b, with the digits that a double has no room for.
  void add_product(double a, double b) {
    const double product = a * b;
    if (!std::isfinite(product)) return add(product);
    add({product, std::fma(a, b, -product)});
  }
  [[nodiscard]] double value() const { return high + low; }

 private:
  void become(double value) {
    high = value;
    low = 0.0;
  }
  void settle() {
    const double sum = high + low;
    if (!std::isfinite(sum)) return become(sum);
    low -= sum - high;
    high = sum;
  }
};

/// a * b of a sum and a number.
inline WideSum product_of(const WideSum& a, double b) {
  WideSum product;
  product.add_product(a.high, b);
  product.add_product(a.low, b);
  return product;
}

}  // namespace onebatch
