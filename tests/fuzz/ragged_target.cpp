#include "trainer/data/ragged.hpp"

#include "tests/fuzz/fuzz_target.hpp"

#include <cstring>

namespace onebatch::fuzz {
namespace {

void run(std::string_view input) {
  std::vector<std::int64_t> offsets(input.size() / sizeof(std::int64_t));
  if (!offsets.empty()) std::memcpy(offsets.data(), input.data(), offsets.size() * sizeof(std::int64_t));
  if (wrong_offsets(offsets)) return;
  std::int64_t values = 0;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    check(offsets[i] == values && offsets[i + 1] > offsets[i], "each sequence begins where the one before ends");
    values = offsets[i + 1];
  }
  check(offsets.size() > 1 && values == offsets.back(), "the last offset counts the values");
}

const Registered k_registered("ragged", run);

}  // namespace
}  // namespace onebatch::fuzz
