#include "trainer/device/inside_table.hpp"

#include "trainer/device/native_failure.hpp"

#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>

namespace onebatch {
namespace {

void check(const at::Tensor& indices, std::int64_t least, std::int64_t end) {
  if (indices.numel() == 0) return;
  const auto [smallest, largest] = at::aminmax(indices);
  const auto first = smallest.item<std::int64_t>();
  const auto last = largest.item<std::int64_t>();
  // The words of LibTorch's own embedding, and then which.
  TORCH_CHECK_INDEX(first >= least && last < end, "index out of range in self: rows ", first, " to ", last,
                    " are asked for, and there are ", least, " to ", end - 1, " (in the compiled program)");
}

}  // namespace

at::Tensor inside_table(const at::Tensor& indices, std::int64_t least, std::int64_t end) {
  return NativeFailure::told([&] {
    check(indices, least, end);
    return indices.clone();
  });
}

}  // namespace onebatch
