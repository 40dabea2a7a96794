#include "trainer/data/idx.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

std::string idx_bytes(const IdxArray& array) {
  std::string bytes = {0, 0, 8, static_cast<char>(array.shape.size())};
  for (const std::int64_t size : array.shape) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((size >> shift) & 0xff);
  }
  return bytes.append(array.values.begin(), array.values.end());
}

void run(std::string_view input) {
  const auto read = [](std::int64_t num_dimensions) {
    return [num_dimensions](const std::string& bytes) {
      const MemoryFile file(bytes);
      return read_idx(file.path(), num_dimensions);
    };
  };
  check_round_trip(input, read(1), idx_bytes);
  check_round_trip(input, read(3), idx_bytes);
}

const Registered k_registered("idx", run);

}  // namespace
}  // namespace onebatch::fuzz
