// Weights that a file gives to a model; and what no file could take from it.
#include "trainer/models/weights_file.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/name_patterns.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/models/stored_tensors.hpp"
#include "trainer/models/weights_report.hpp"

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace onebatch {
namespace {

// By their names in the model.
using InFile = std::map<std::string, const StoredTensor*>;

bool begins(const std::vector<std::string>& names, const std::string& prefix) {
  return std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(prefix); });
}

// Where the file's names alone have the prefix it is taken off, where the model's alone have it put on; what lacks it
// in a file that has it is left out.
InFile by_model_names(const std::vector<StoredTensor>& stored, const std::vector<NamedTensor>& in_model,
                      const ModelConfiguration& configuration, std::vector<std::string>& left_out) {
  const std::string& prefix = configuration.weights_prefix;
  std::vector<std::string> theirs;
  std::vector<std::string> ours;
  for (const StoredTensor& one : stored) theirs.push_back(one.name);
  for (const NamedTensor& one : in_model) ours.push_back(one.name);
  const bool in_file = begins(theirs, prefix);
  const bool in_ours = begins(ours, prefix);
  if (!in_file && !in_ours)
    throw UserError("model.weights_prefix = \"" + prefix + "\": no name begins with it, neither in " +
                    configuration.weights + " (" + listed(names_like(prefix, theirs, 3)) + ") nor in the model (" +
                    listed(names_like(prefix, ours, 3)) + ")");
  InFile found;
  for (const StoredTensor& one : stored) {
    if (!in_file)
      found[prefix + one.name] = &one;
    else if (!one.name.starts_with(prefix))
      left_out.push_back(one.name);
    else
      found[in_ours ? one.name : one.name.substr(prefix.size())] = &one;
  }
  return found;
}

// What the file is to give: each tensor under the names that it has there, or its first, where it has none and must.
std::vector<NamedTensor> wanted_of(const Model& model, const std::vector<NamedTensor>& all, const InFile& in_file,
                                   const TensorSet& fresh) {
  TensorSet found = fresh;
  std::vector<NamedTensor> wanted;
  for (const NamedTensor& item : all) {
    if (!in_file.contains(item.name) || fresh.contains(item.tensor.unsafeGetTensorImpl())) continue;
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

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns, [&](const std::string& pattern) { return matches_name(pattern, name); });
}

WeightsMisfit misfit_of(const std::vector<NamedTensor>& wanted, const std::vector<NamedTensor>& all,
                        const InFile& in_file, const std::vector<std::string>& anew) {
  WeightsMisfit misfit;
  for (const auto& [name, tensor] : wanted) {
    const auto found = in_file.find(name);
    if (found == in_file.end())
      misfit.missing.push_back({name, shape_text(tensor.sizes())});
    else if (tensor.sizes() != at::IntArrayRef(found->second->shape))
      misfit.reshaped.push_back({name, shape_text(found->second->shape), shape_text(tensor.sizes())});
  }
  InFile unknown = in_file;
  for (const NamedTensor& item : all) unknown.erase(item.name);
  for (const auto& [name, stored] : unknown) {
    if (!matches_any(anew, name)) misfit.unknown.push_back({name, shape_text(stored->shape)});
  }
  return misfit;
}

// Throws where the file has two values for what is one tensor in the model.
void check_shared(const std::string& file, const std::vector<NamedTensor>& wanted, const InFile& in_file) {
  std::map<const c10::TensorImpl*, std::string> first;
  for (const auto& [name, tensor] : wanted) {
    const auto [other, is_new] = first.emplace(tensor.unsafeGetTensorImpl(), name);
    if (is_new || host_bytes(in_file.at(name)->read()) == host_bytes(in_file.at(other->second)->read())) continue;
    throw UserError(file + ": " + other->second + " and " + name +
                    " are one tensor in the model, but differ in the file");
  }
}

// The least type that has both's values.
at::ScalarType widest(at::ScalarType own, at::ScalarType stored) {
  constexpr std::array k_known = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};
  const auto is_known = [&](at::ScalarType type) { return std::ranges::find(k_known, type) != k_known.end(); };
  return is_known(own) && is_known(stored) ? c10::promoteTypes(own, stored) : own;
}

void copy_into(const at::Tensor& tensor, const StoredTensor& stored) {
  if (const auto wide = widest(tensor.scalar_type(), stored.type.value_or(tensor.scalar_type()));
      wide != tensor.scalar_type()) {
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    // Until the model moves to the run's type, which may be as wide.
    at::Tensor(tensor).set_data(tensor.detach().to(wide));
  }
  tensor.copy_(stored.read());
}

}  // namespace

void check_savable(const Model& model) {
  for (const auto& [name, tensor] : model.parameters()) {
    if (tensor.is_complex())
      throw UserError("the parameter " + name + " is complex (" + c10::toString(tensor.scalar_type()) +
                      "), which is not trained here: keep real and imaginary part as one real parameter, and make it "
                      "complex in the forward (torch.view_as_complex)");
  }
  for (const auto& [name, tensor] : model.state_dict()) {
    if (can_be_saved(tensor)) continue;
    throw UserError(
        name + " is " +
        (tensor.layout() == at::kStrided ? std::string("of type ") + c10::toString(tensor.scalar_type()) : "sparse") +
        ", which no checkpoint holds (safetensors): keep it in another type (complex: torch.view_as_real), or make it "
        "in the forward");
  }
}

std::vector<NamedTensor> with_all_names(const Model& model) {
  std::vector<NamedTensor> all = state_of(model);
  std::set<std::string> names;
  for (const NamedTensor& item : all) names.insert(item.name);
  for (NamedTensor& item : model.state_dict()) {
    if (names.insert(item.name).second) all.push_back(std::move(item));
  }
  return all;
}

void load_weights(Model& model, const ModelConfiguration& configuration, const TensorSet& fresh) {
  const std::string& file = configuration.weights;
  const std::vector<StoredTensor> stored = tensors_in(file);
  const std::vector<NamedTensor> all = with_all_names(model);
  std::vector<std::string> left_out;
  const InFile in_file = by_model_names(stored, all, configuration, left_out);
  const std::vector<NamedTensor> wanted = wanted_of(model, all, in_file, fresh);
  WeightsMisfit misfit = misfit_of(wanted, all, in_file, configuration.reinitialize);
  misfit.left_out = std::move(left_out);
  if (const std::string text = misfit_text(misfit); !text.empty())
    throw UserError(file + " does not fit the model:" + text);
  check_shared(file, wanted, in_file);
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : wanted) copy_into(tensor, *in_file.at(name));
}

}  // namespace onebatch
