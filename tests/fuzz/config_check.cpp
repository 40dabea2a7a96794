#include "tests/fuzz/config_check.hpp"

#include "tests/fuzz/fuzz_target.hpp"
#include "trainer/settings/keys.hpp"

namespace onebatch::fuzz {
namespace {

[[maybe_unused]] const bool k_kinds_are_known = [] {
  register_kinds();
  return true;
}();

}  // namespace

void check_loaded(launch::LoadedConfig loaded) {
  for (const auto& mistake : loaded.mistakes)
    check(!mistake.place.empty() && !mistake.message.empty(), "a mistake has a place and words");
  if (!loaded.mistakes.empty()) return;
  static_cast<void>(launch::check_contradictions(loaded, "x.toml", 2));
  // The one key whose default is no value of it.
  if (loaded.configuration.batch.global_batch_size == 0) loaded.configuration.batch.global_batch_size = 1;
  const std::string text = launch::resolved_config(loaded);
  const auto again = launch::load_config(text, "resolved.toml", {});
  check(again.mistakes.empty(), "what was written is accepted: " + launch::mistakes_text(again.mistakes) + text);
  for (const Key& key : configuration_keys()) {
    const std::string before = key.show(loaded.configuration);
    check(key.show(again.configuration) == before,
          key.path + " = " + before + " became " + key.show(again.configuration));
  }
}

}  // namespace onebatch::fuzz
