// --set arguments, one a line, over a small file.
#include "tests/fuzz/config_check.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <sstream>

namespace onebatch::fuzz {
namespace {

void run(std::string_view input) {
  std::vector<std::string> assignments;
  std::istringstream lines{std::string(input)};
  for (std::string line; std::getline(lines, line);) assignments.push_back(line);
  check_loaded(launch::load_config("[run]\nepochs = 2\n", "x.toml", assignments));
}

const Registered k_registered("assignments", run);

}  // namespace
}  // namespace onebatch::fuzz
