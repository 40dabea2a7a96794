// Weights that a file gives to a model; and what no file could take from it.
#include "trainer/base/error.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/models/model.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace onebatch {
namespace {

// What has one name in the file or several, of which any will do.
std::vector<NamedTensor> named_as_in(const Model& model,
                                     const std::map<std::string, const SafetensorsEntry*>& in_file) {
  std::vector<NamedTensor> all = state_of(model);
  for (NamedTensor& item : model.state_dict()) all.push_back(std::move(item));
  std::set<const c10::TensorImpl*> found;
  std::set<std::string> names;
  std::vector<NamedTensor> wanted;
  for (const NamedTensor& item : all) {
    if (!in_file.contains(item.name) || !names.insert(item.name).second) continue;
    found.insert(item.tensor.unsafeGetTensorImpl());
    wanted.push_back(item);
  }
  const std::vector<std::string> statistics = model.running_statistics();
  for (const NamedTensor& item : model.parameters()) {
    if (!found.contains(item.tensor.unsafeGetTensorImpl())) wanted.push_back(item);
  }
  for (const NamedTensor& item : model.buffers()) {
    const bool must_be_there = std::ranges::find(statistics, item.name) != statistics.end();
    if (must_be_there && !found.contains(item.tensor.unsafeGetTensorImpl())) wanted.push_back(item);
  }
  return wanted;
}

// Throws where the file has two values for what is one tensor in the model.
void check_shared(const std::filesystem::path& file, const SafetensorsHeader& header,
                  const std::vector<NamedTensor>& tensors,
                  const std::map<std::string, const SafetensorsEntry*>& in_file) {
  std::map<const c10::TensorImpl*, std::string> first;
  for (const auto& [name, tensor] : tensors) {
    const auto [other, is_new] = first.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new) continue;
    if (read_safetensors_entry(file, header, *in_file.at(name)) !=
        read_safetensors_entry(file, header, *in_file.at(other->second)))
      throw UserError(file.string() + ": " + other->second + " and " + name +
                      " are one tensor in the model, but differ in the file");
  }
}

}  // namespace

void check_savable(const Model& model) {
  for (const auto& [name, tensor] : model.parameters()) {
    if (tensor.is_complex())
      throw UserError("the parameter " + name + " is complex (" + c10::toString(tensor.scalar_type()) +
                      "), which is not trained here: keep real and imaginary part as one real parameter, and make it "
                      "complex in the forward (torch.view_as_complex)");
  }
  for (const auto& [name, tensor] : state_of(model)) {
    if (can_be_saved(tensor)) continue;
    throw UserError(
        name + " is " +
        (tensor.layout() == at::kStrided ? std::string("of type ") + c10::toString(tensor.scalar_type()) : "sparse") +
        ", which no checkpoint holds (safetensors): keep it in another type (complex: torch.view_as_real), or make it "
        "in the forward");
  }
}

void load_weights(Model& model, const std::string& file) {
  const SafetensorsHeader header = read_safetensors_header(file);
  std::map<std::string, const SafetensorsEntry*> in_file;
  for (const auto& entry : header.entries) in_file[entry.name] = &entry;
  const std::vector<NamedTensor> tensors = named_as_in(model, in_file);
  for (const auto& [name, tensor] : tensors) {
    const auto found = in_file.find(name);
    if (found == in_file.end() || type_of_dtype(found->second->dtype) != at::kDouble || !tensor.is_floating_point())
      continue;
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    // Until the model moves to the run's type, which may be as wide.
    at::Tensor(tensor).set_data(tensor.to(at::kDouble));
  }
  load_tensors(file, tensors, Extra::refused);
  check_shared(file, header, tensors, in_file);
}

}  // namespace onebatch
