#include "trainer/checkpoint/averaged_weights.hpp"

#include "trainer/base/error.hpp"
#include "trainer/checkpoint/checkpoint_contents.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

bool is_averaged(const std::string& name) {
  return name.starts_with(k_average_prefix);
}

std::string without_prefix(const std::string& name) {
  return name.substr(std::string_view(k_average_prefix).size());
}

// A tensor of a file, with its bytes.
struct Stored {
  SafetensorsEntry entry;
  std::vector<std::byte> bytes;
};

using ByName = std::map<std::string, Stored>;

ByName read_averages(const fs::path& checkpoint) {
  const fs::path file = checkpoint / k_optimizer_file;
  const SafetensorsHeader header = read_safetensors_header(file);
  ByName averages;
  for (const SafetensorsEntry& entry : header.entries) {
    if (is_averaged(entry.name))
      averages[without_prefix(entry.name)] = {entry, read_safetensors_entry(file, header, entry)};
  }
  return averages;
}

const Stored* found_in(const ByName& averages, const std::string& name) {
  const auto found = averages.find(name);
  return found == averages.end() ? nullptr : &found->second;
}

// What an optimizer has of every parameter under one value of a key, and not under another.
struct KeptBy {
  const char* prefix;
  const char* what;
  const char* with;
  const char* without;
};
constexpr std::array k_kept_by = {
    KeptBy{"momentum_buffer.", "momentum", "optimizer.momentum above 0", "optimizer.momentum = 0"},
    KeptBy{"master.", "masters of the parameters", "precision.master_weights = true",
           "precision.master_weights = false"}};

void check_kept(const fs::path& checkpoint, const std::vector<SafetensorsEntry>& entries,
                const std::vector<NamedTensor>& wanted) {
  for (const KeptBy& one : k_kept_by) {
    const auto is_kept = [&](const auto& tensor) { return tensor.name.starts_with(one.prefix); };
    const bool saved = std::ranges::any_of(entries, is_kept);
    if (saved == std::ranges::any_of(wanted, is_kept)) continue;
    throw UserError(fmt::format("{} was written {} {}: write {}, or begin a new run", checkpoint.string(),
                                saved ? "with" : "without", one.what, saved ? one.with : one.without));
  }
}

// Where a checkpoint does not say what is shared: what has the same bits as a tensor that was averaged is that tensor.
const Stored* average_of_same_bits(const Stored& one, const ByName& averages, const ByName& model) {
  for (const auto& [name, average] : averages) {
    const auto other = model.find(name);
    if (other == model.end() || other->second.entry.dtype != one.entry.dtype) continue;
    if (other->second.entry.shape == one.entry.shape && other->second.bytes == one.bytes) return &average;
  }
  return nullptr;
}

}  // namespace

std::map<std::string, std::string> shared_names(const Model& model) {
  using Place = std::pair<const void*, std::vector<std::int64_t>>;
  const auto place_of = [](const at::Tensor& tensor) { return Place(tensor.const_data_ptr(), tensor.sizes().vec()); };
  std::map<Place, std::string> trained;
  for (const NamedTensor& one : model.parameters()) trained.emplace(place_of(one.tensor), one.name);
  std::map<std::string, std::string> shared;
  for (const NamedTensor& one : model.state_dict()) {
    const auto found = trained.find(place_of(one.tensor));
    if (found != trained.end() && found->second != one.name) shared[one.name] = found->second;
  }
  return shared;
}

bool has_averaged_weights(const fs::path& checkpoint) {
  const SafetensorsHeader header = read_safetensors_header(checkpoint / k_optimizer_file);
  return std::ranges::any_of(header.entries, [](const SafetensorsEntry& entry) { return is_averaged(entry.name); });
}

bool takes_averaged_weights(const fs::path& checkpoint, WeightsChoice choice) {
  if (choice == WeightsChoice::raw) return false;
  if (has_averaged_weights(checkpoint)) return true;
  if (choice == WeightsChoice::averaged)
    throw UserError(checkpoint.string() +
                    " has no averaged weights, since its run had optimizer.ema_decay = 0: leave --weights out, or "
                    "write --weights raw");
  return false;
}

void load_averaged_weights(const fs::path& checkpoint, const std::vector<NamedTensor>& state_dict) {
  const fs::path file = checkpoint / k_optimizer_file;
  std::vector<NamedTensor> wanted;
  for (const SafetensorsEntry& entry : read_safetensors_header(file).entries) {
    if (!is_averaged(entry.name)) continue;
    const auto found = std::ranges::find(state_dict, without_prefix(entry.name), &NamedTensor::name);
    if (found == state_dict.end())
      throw UserError(file.string() + " does not fit the model: " + entry.name + " is of a parameter that it has not");
    wanted.push_back({entry.name, found->tensor});
  }
  load_tensors(file, wanted, Extra::ignored);
}

bool load_optimizer(const fs::path& checkpoint, const Optimizer& optimizer) {
  const fs::path file = checkpoint / k_optimizer_file;
  const auto entries = read_safetensors_header(file).entries;
  const auto is_average = [](const auto& one) { return is_averaged(one.name); };
  const auto saved = std::ranges::count_if(entries, is_average);
  std::vector<NamedTensor> wanted = optimizer.state();
  check_kept(checkpoint, entries, wanted);
  const bool left_out = saved > 0 && std::ranges::none_of(wanted, is_average);
  if (saved == 0) std::erase_if(wanted, is_average);
  const bool others_fit = std::ssize(entries) - saved == std::ssize(wanted);
  load_tensors(file, wanted, left_out && others_fit ? Extra::ignored : Extra::refused);
  return saved > 0;
}

Checksum write_averaged_model(const fs::path& checkpoint, const fs::path& target) {
  const fs::path file = checkpoint / k_model_file;
  const SafetensorsHeader header = read_safetensors_header(file);
  const ByName averages = read_averages(checkpoint);
  const fs::path state_file = checkpoint / k_state_file;
  const auto shared = parse_run_state(read_text(state_file), state_file.string()).shared_names;
  ByName model;
  for (const SafetensorsEntry& entry : header.entries)
    model[entry.name] = {entry, read_safetensors_entry(file, header, entry)};
  std::vector<SafetensorsView> views;
  for (const SafetensorsEntry& entry : header.entries) {
    const Stored& raw = model.at(entry.name);
    const Stored* average =
        found_in(averages, shared && shared->contains(entry.name) ? shared->at(entry.name) : entry.name);
    if (average == nullptr && !shared) average = average_of_same_bits(raw, averages, model);
    const Stored& taken = average != nullptr ? *average : raw;
    views.push_back({entry.name, taken.entry.dtype, entry.shape, taken.bytes});
  }
  return write_safetensors(target, views, header.metadata);
}

}  // namespace onebatch
