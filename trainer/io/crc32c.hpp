// CRC-32C (Castagnoli), as record files of TensorFlow have it.
#pragma once

#include <cstdint>
#include <string_view>

namespace onebatch {

[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace onebatch
