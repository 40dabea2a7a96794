#include "trainer/models/inside_table.hpp"

#include <ATen/ops/aminmax.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <utility>

namespace onebatch {
namespace {

thread_local OutsideTable* current = nullptr;

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

OutsideTable::OutsideTable() : before_(std::exchange(current, this)) {}

OutsideTable::~OutsideTable() {
  current = before_;
}

at::Tensor inside_table(const at::Tensor& indices, std::int64_t least, std::int64_t end) {
  try {
    check(indices, least, end);
  } catch (...) {
    if (current != nullptr && !current->error_) current->error_ = std::current_exception();
    throw;
  }
  return indices.clone();
}

}  // namespace onebatch

TORCH_LIBRARY_FRAGMENT(onebatch, library) {
  library.def("inside(Tensor indices, int least, int end) -> Tensor");
}

TORCH_LIBRARY_IMPL(onebatch, CPU, library) {
  library.impl("inside", &onebatch::inside_table);
}
