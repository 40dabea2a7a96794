#include "trainer/device/row_sums.hpp"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <vector>

namespace onebatch {
namespace {

constexpr std::int64_t k_least_elements = std::int64_t{1} << 14;  // for a thread
constexpr std::int64_t k_together = 16;                           // columns: few lines of a cache are two threads'

// Where each begins in the sum, of [rows, columns].
std::vector<std::int64_t> beginnings(const at::Tensor& rows, std::int64_t number, std::int64_t columns) {
  const at::Tensor as_read = rows.to(at::kLong).contiguous();
  const auto* given = as_read.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> found(static_cast<std::size_t>(as_read.numel()));
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::int64_t row = given[i] < 0 ? given[i] + number : given[i];
    TORCH_CHECK_INDEX(row >= 0 && row < number, "index ", given[i], " is out of bounds for ", number, " rows");
    found[i] = row * columns;
  }
  return found;
}

template <typename T>
void add(T* sum, const T* values, const std::vector<std::int64_t>& beginnings, std::int64_t columns) {
  const auto rows = static_cast<std::int64_t>(beginnings.size());
  const std::int64_t least =
      std::max<std::int64_t>(1, k_least_elements / (k_together * std::max<std::int64_t>(1, rows)));
  // Each thread has columns of its own.
  at::parallel_for(0, (columns + k_together - 1) / k_together, least, [&](std::int64_t first, std::int64_t end) {
    const std::int64_t last = std::min(columns, end * k_together);
    const T* row = values;
    for (const std::int64_t begin : beginnings) {
      for (std::int64_t column = first * k_together; column < last; ++column) sum[begin + column] += row[column];
      row += columns;
    }
  });
}

}  // namespace

void add_rows(const at::Tensor& summed, const at::Tensor& rows, const at::Tensor& values) {
  TORCH_CHECK(summed.is_cpu() && summed.dim() >= 1 && summed.is_contiguous(),
              "add_rows is for contiguous sums in host memory");
  TORCH_CHECK(at::isIntegralType(rows.scalar_type(), false), "add_rows is given ", rows.scalar_type(), " as rows");
  TORCH_CHECK(values.scalar_type() == summed.scalar_type(), "add_rows is for values of the sum's type");
  const std::int64_t number = summed.size(0);
  const std::int64_t columns = number == 0 ? 0 : summed.numel() / number;
  TORCH_CHECK(values.numel() == rows.numel() * columns, "add_rows has ", rows.numel(), " rows of ", columns,
              " numbers to add, and is given ", values.numel());
  const std::vector<std::int64_t> to = beginnings(rows, number, columns);
  const at::Tensor as_read = values.contiguous();
  AT_DISPATCH_FLOATING_TYPES(summed.scalar_type(), "add_rows", [&] {
    add(summed.mutable_data_ptr<scalar_t>(), as_read.const_data_ptr<scalar_t>(), to, columns);
  });
}

}  // namespace onebatch
