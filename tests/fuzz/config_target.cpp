#include "tests/fuzz/config_check.hpp"
#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

void run(std::string_view input) {
  check_loaded(launch::load_config(std::string(input), "x.toml", {}));
}

const Registered k_registered("config", run);

}  // namespace
}  // namespace onebatch::fuzz
