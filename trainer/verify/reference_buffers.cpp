#include "trainer/verify/reference_buffers.hpp"

#include <algorithm>
#include <cmath>

namespace onebatch {
namespace {

at::Tensor finite_part(const at::Tensor& numbers) {
  return numbers.nan_to_num(0.0, 0.0, 0.0);
}

// NaN where NaN is, and the same infinities.
bool are_finite_alike(const at::Tensor& a, const at::Tensor& b) {
  const auto infinities = [](const at::Tensor& x) { return x.masked_fill(x.isfinite(), 0.0).nan_to_num(0.0); };
  return a.isnan().equal(b.isnan()) && infinities(a).equal(infinities(b));
}

bool differ_beyond_rounding(const at::Tensor& ours, const at::Tensor& exact) {
  if (ours.sizes() != exact.sizes()) return true;
  if (!ours.is_floating_point() && !ours.is_complex()) return !ours.cpu().equal(exact.cpu());
  return !are_finite_alike(as_numbers(ours), as_numbers(exact));
}

}  // namespace

BufferDifference difference_of_buffers(const std::vector<NamedTensor>& ours, const std::vector<NamedTensor>& exact,
                                       const std::vector<std::string>& left_out) {
  Gradient a, b;
  double most = 0.0;
  BufferDifference difference;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const auto& [name, wanted] = exact[i];
    if (std::find(left_out.begin(), left_out.end(), name) != left_out.end()) continue;
    if (differ_beyond_rounding(ours[i].tensor, wanted)) return {HUGE_VAL, name};
    if (!wanted.is_floating_point() && !wanted.is_complex()) continue;
    a.push_back({name, finite_part(as_numbers(ours[i].tensor))});
    b.push_back({name, finite_part(as_numbers(wanted))});
    const double one = difference_of(a.back().tensor, b.back().tensor).relative_l2;
    if (!(one <= most)) {
      most = one;
      difference.worst = name;
    }
  }
  difference.relative_l2 = difference_of(a, b).relative_l2;
  return difference;
}

}  // namespace onebatch
