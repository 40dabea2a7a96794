#include "trainer/settings/identity.hpp"

#include "trainer/settings/keys.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace onebatch {
namespace {

using Identity = std::map<std::string, std::string>;

std::string without_quotes(const std::string& shown) {
  return shown.starts_with('"') ? shown.substr(1, shown.size() - 2) : shown;
}

constexpr const char* k_former_digest = "the training data's list of files";

// Older checkpoints have an optimizer's number and LibTorch's name of a precision.
const std::map<std::string, Identity>& former_words() {
  static const std::map<std::string, Identity> words = {
      {"optimizer.kind", {{"0", "adamw"}, {"1", "adam"}, {"2", "sgd"}}},
      {"precision.parameters",
       {{"Float", "float32"}, {"Double", "float64"}, {"BFloat16", "bfloat16"}, {"Half", "float16"}}}};
  return words;
}

// The saved value as it is written today. Older checkpoints have six digits of a number after its point.
std::string as_written_today(const std::string& key, const std::string& saved, const std::string& now) {
  const auto words = former_words().find(key);
  if (words != former_words().end() && words->second.contains(saved)) return words->second.at(saved);
  return key == "model.dropout" && saved == std::to_string(std::strtod(now.c_str(), nullptr)) ? now : saved;
}

// Of a key that older checkpoints lack: what it would have been then.
std::string before_there_was(const std::string& key, const std::string& now) {
  if (key == k_data_digest || key == k_program_digest) return now;  // which nobody can say any more
  static const Identity then = {{"model.freeze", "[]"},
                                {"data.fraction", "1.0"},
                                {"data.sampling", "shuffle"},
                                {"data.validation.fraction", "0.0"}};
  const auto found = then.find(key);
  return found == then.end() ? "none" : found->second;
}

}  // namespace

Identity identity_of_run(const Configuration& configuration) {
  Identity identity;
  for (const Key& key : configuration_keys()) {
    if (includes(key.about.changes, Changes::run) && is_in_use(key, configuration))
      identity[key.path] = without_quotes(key.show(configuration));
  }
  return identity;
}

std::string identity_differences(const Identity& saved, const Identity& now) {
  std::string differences;
  for (const auto& [key, value] : now) {
    auto found = saved.find(key);
    if (found == saved.end() && key == k_data_digest) found = saved.find(k_former_digest);
    const std::string before =
        found == saved.end() ? before_there_was(key, value) : as_written_today(key, found->second, value);
    if (before != value) differences += fmt::format("\n  the checkpoint has {} = {}, not {}", key, before, value);
  }
  return differences;
}

std::string identity_of_probe(const Configuration& configuration) {
  std::string text;
  for (const Key& key : configuration_keys()) {
    if (includes(key.about.changes, Changes::probe) && is_in_use(key, configuration))
      text += key.path + " = " + key.measured(configuration) + "\n";
  }
  return text;
}

}  // namespace onebatch
