// Whole numbers and booleans in the type that a program takes, whatever the data has.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace onebatch {

/// The tensor in `type` where both are whole numbers or booleans, else as it is.
at::Tensor in_whole_type(const at::Tensor& tensor, at::ScalarType type);

/// What is in a tensor on the CPU and `type`, one of whole numbers or booleans, cannot hold: "is Byte, which holds 0 to
/// 255, and is given 300". Empty: it holds them all. On another device nobody looks, since that would wait for it.
std::string beyond_type(const at::Tensor& tensor, at::ScalarType type);

/// Of PyTorch's name: "uint8". None: it is another's.
std::optional<at::ScalarType> whole_type_named(const std::string& name);

}  // namespace onebatch
