#include "launch/dataset_size.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/idx.hpp"
#include "trainer/io/safetensors.hpp"

namespace onebatch::launch {
namespace {

std::optional<std::int64_t> samples_in(const SafetensorsHeader& header, const std::string& name) {
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.name == name && !entry.shape.empty()) return entry.shape[0];
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> dataset_size(const DatasetConfiguration& data) {
  try {
    switch (data.kind) {
      case DataKind::synthetic: return data.size;
      case DataKind::safetensors: return samples_in(read_safetensors_header(data.path), data.inputs.front());
      case DataKind::idx: return read_idx(find_idx(data.path, "train-labels-idx1-ubyte"), 1).shape[0];
    }
  } catch (const UserError&) {
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace onebatch::launch
