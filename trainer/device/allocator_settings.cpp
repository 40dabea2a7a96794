#include "trainer/device/allocator_settings.hpp"

#include <fmt/format.h>

#include <cstdlib>

namespace onebatch {
namespace {

struct Option {
  std::string name;
  std::string value;
};

std::vector<Option> options_of(const MemoryConfiguration& memory) {
  std::vector<Option> options;
  if (memory.expandable_segments) options.push_back({"expandable_segments", "True"});
  if (memory.max_split_size_mb) options.push_back({"max_split_size_mb", fmt::to_string(*memory.max_split_size_mb)});
  if (memory.garbage_collection_threshold > 0.0)
    options.push_back({"garbage_collection_threshold", fmt::format("{}", memory.garbage_collection_threshold)});
  return options;
}

// At commas outside of brackets.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char letter : text) {
    depth += letter == '[' ? 1 : (letter == ']' ? -1 : 0);
    if (letter == ',' && depth == 0)
      parts.emplace_back();
    else if (letter != ' ')
      parts.back() += letter;
  }
  std::erase(parts, "");
  return parts;
}

}  // namespace

AllocatorSettings allocator_settings(const MemoryConfiguration& memory, const std::string& given) {
  AllocatorSettings settings;
  const std::vector<Option> own = options_of(memory);
  if (own.empty()) return settings;
  for (const std::string& part : parts_of(given)) {
    bool kept = true;
    for (const Option& option : own) {
      if (!part.starts_with(option.name + ":")) continue;
      kept = false;
      if (part != option.name + ":" + option.value) settings.overridden.push_back(part);
    }
    if (kept) settings.text += (settings.text.empty() ? "" : ",") + part;
  }
  for (const auto& [name, value] : own) settings.text += (settings.text.empty() ? "" : ",") + name + ":" + value;
  return settings;
}

GivenToAllocator given_to_allocator() {
  for (const char* variable : {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}) {
    if (const char* text = std::getenv(variable); text != nullptr) return {variable, text};
  }
  return {};
}

}  // namespace onebatch
