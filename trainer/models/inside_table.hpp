// Whether numbers of the data are rows of the table that native code looks them up in: see python/onebatch/indices.py.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>

namespace onebatch {

/// While it lives it keeps what native code on this thread was refused: the code itself says that it has failed, and no
/// more.
class OutsideTable {
 public:
  OutsideTable();
  ~OutsideTable();
  OutsideTable(const OutsideTable&) = delete;
  OutsideTable& operator=(const OutsideTable&) = delete;

  [[nodiscard]] bool was_met() const { return error_ != nullptr; }
  /// c10::IndexError.
  [[noreturn]] void rethrow() const { std::rethrow_exception(error_); }

 private:
  friend at::Tensor inside_table(const at::Tensor& indices, std::int64_t least, std::int64_t end);

  OutsideTable* before_;
  std::exception_ptr error_;
};

/// A copy of `indices`, whole numbers in host memory. Throws c10::IndexError where one is not from `least` to before
/// `end`.
at::Tensor inside_table(const at::Tensor& indices, std::int64_t least, std::int64_t end);

}  // namespace onebatch
