// The header of NumPy's .npy format (numpy.lib.format, versions 1 to 3). No LibTorch here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace onebatch {

struct NpyHeader {
  std::string dtype;  // as safetensors has it: "F32", "U8", …
  std::vector<std::int64_t> shape;
  std::size_t begin = 0;  // of the elements, in C's order, little-endian
};

/// Of a whole file. Throws UserError that says what is wrong with it, or is not read: Fortran's order, other types,
/// sizes that are not those of the bytes.
NpyHeader read_npy_header(std::span<const std::byte> file);

}  // namespace onebatch
