// What native code is given: it reads as far as it was told to, and looks at nothing.
#pragma once

#include "trainer/models/compiled_package.hpp"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace onebatch {

/// Those inputs that are checked with others, once.
struct Unchecked {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Whether it is what the code was compiled for. Whole numbers and booleans get its types. What does not fit, and what
/// to do; empty: all does.
std::string misfit(const CompiledSignature& takes, std::vector<at::Tensor>& given, Unchecked unchecked = {});

/// A GPU's code reads 16 bytes at once.
bool is_aligned(const at::Tensor& tensor);
/// The tensor as code reads it: a copy where it does not lie so.
at::Tensor as_read(const at::Tensor& input);

}  // namespace onebatch
