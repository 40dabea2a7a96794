// libFuzzer's way into the one target of this program. An exception that escapes ends the process: libFuzzer keeps the
// input.
#include "tests/fuzz/fuzz_target.hpp"

#include <cstddef>
#include <cstdint>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  onebatch::fuzz::targets().front().run({reinterpret_cast<const char*>(data), size});
  return 0;
}
