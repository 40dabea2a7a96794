// What the bytes of a member of a sample become, by the ending of its name.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string>

namespace onebatch {

/// A tensor of one sample, from the bytes of its file. Throws UserError that says what is wrong with them.
using Decoder = std::function<at::Tensor(std::span<const std::byte>)>;

/// By what stands after the last dot: "npy" (a NumPy array), "cls" (a whole number in digits), "json:KEY" (what that
/// key of an object holds: a number or a list of them). Throws UserError that names those that there are.
Decoder decoder_of(const std::string& ending);

}  // namespace onebatch
