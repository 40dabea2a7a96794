#include "trainer/io/crc32c.hpp"

#include <array>

namespace onebatch {
namespace {

constexpr std::uint32_t k_polynomial = 0x82f63b78U;  // 0x1edc6f41 with its bits in the other order

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1U) != 0 ? k_polynomial : 0U);
    table[byte] = value;
  }
  return table;
}

constexpr auto k_table = make_table();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t value = ~0U;
  for (const char letter : bytes) value = (value >> 8) ^ k_table[(value ^ static_cast<unsigned char>(letter)) & 0xffU];
  return ~value;
}

}  // namespace onebatch
