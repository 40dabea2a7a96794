#include "trainer/models/exported_state.hpp"

#include "trainer/io/json_reader.hpp"
#include "trainer/models/exported_schema.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

namespace onebatch {
namespace {

using Identity = std::tuple<std::string, int, std::vector<std::int64_t>, std::vector<std::int64_t>, std::int64_t, bool>;

// What a record holds, as elements of its tensors' type.
at::Tensor flat(const std::string& bytes, at::ScalarType type) {
  const auto element = static_cast<std::int64_t>(c10::elementSize(type));
  at::Tensor whole = at::empty({static_cast<std::int64_t>(bytes.size()) / element}, type);
  if (whole.nbytes() > 0) std::memcpy(whole.mutable_data_ptr(), bytes.data(), whole.nbytes());
  return whole;
}

at::ScalarType type_of(const ExportedTensor& tensor, const std::string& file) {
  const nlohmann::json number = tensor.type;
  return scalar_type_in(JsonReader(number, file + ": the type of " + tensor.name));
}

void add_once(std::vector<NamedTensor>& list, const std::string& name, const at::Tensor& tensor) {
  if (std::ranges::none_of(list, [&](const NamedTensor& one) { return one.tensor.is_same(tensor); }))
    list.push_back({name, tensor});
}

}  // namespace

ExportedState::ExportedState(ExportedArchive& archive, const std::string& file) {
  // The largest records first: each one's memory, which is free once its tensors are made, then holds later ones'.
  const auto place = [&](const ExportedTensor& one) {
    return std::pair(-std::ssize(archive.records.at(one.record)), one.record);
  };
  std::ranges::stable_sort(archive.tensors, {}, place);
  const at::AutoDispatchBelowADInplaceOrView no_views;  // each is a leaf of its own, whatever memory it shares
  std::map<Identity, at::Tensor> made;
  at::Tensor whole;
  std::string record;
  for (const ExportedTensor& one : archive.tensors) {
    const at::ScalarType type = type_of(one, file);
    if (one.record != record) {
      if (!record.empty()) archive.records.erase(record);
      whole = flat(archive.records.at(one.record), type);
      record = one.record;
    } else if (whole.scalar_type() != type) {
      throw UserError(file + ": the tensor " + one.name + " shares memory with one of another type: write .clone()");
    }
    at::Tensor& tensor = made[{one.record, one.type, one.sizes, one.strides, one.offset, one.is_parameter}];
    if (!tensor.defined()) tensor = whole.as_strided(one.sizes, one.strides, one.offset);
    if (one.is_parameter && one.requires_grad) tensor.requires_grad_();
    if (one.is_parameter) parameter_names_.insert(one.name);
    if (!by_name_.emplace(one.name, tensor).second)
      throw UserError(file + ": two of its tensors are called " + one.name);
  }
  archive.records.clear();
  take_signature(archive.program, file);
  settle_type();
}

void ExportedState::take_signature(const nlohmann::json& program, const std::string& file) {
  const JsonReader specs =
      JsonReader(program, file + ": its program").field("graph_module").field("signature").field("input_specs");
  std::set<std::string> not_persistent;
  for (std::size_t i = 0; i < specs.array_size("inputs"); ++i) {
    const auto [kind, spec] = tagged(specs.item(i));
    if (kind == "user_input" || kind == "constant_input") continue;
    if (kind != "parameter" && kind != "buffer" && kind != "tensor_constant")
      spec.fail("is an input of the kind \"" + kind + "\" (a custom object or a token), which is not known");
    const std::string name = spec.field((kind + "_name").c_str()).text();
    const std::string graph_name = spec.field("arg").field("name").text();
    if (!by_name_.contains(name)) spec.fail("names the tensor \"" + name + "\", which the file lacks");
    if (by_graph_name_.contains(graph_name)) spec.fail("is called as another input is: " + graph_name);
    if ((kind == "parameter") != parameter_names_.contains(name))
      spec.fail("takes \"" + name + "\" as a " + kind + ", and the file says otherwise");
    if (kind == "buffer" && spec.has("persistent") && !spec.field("persistent").boolean()) not_persistent.insert(name);
    take_input(graph_name, name, kind);
  }
  const auto is_known = [&](const at::Tensor& tensor) { return names_.contains(tensor.unsafeGetTensorImpl()); };
  for (const auto& [name, tensor] : by_name_) {
    const bool is_parameter = parameter_names_.contains(name);
    if (!is_known(tensor)) take_input("", name, is_parameter ? "parameter" : "buffer");  // no call takes it
    const bool is_constant =
        std::ranges::any_of(constants_, [&](const at::Tensor& one) { return one.is_same(tensor); });
    if (!not_persistent.contains(name) && !is_constant) state_dict_.push_back({name, tensor});
  }
}

void ExportedState::take_input(const std::string& graph_name, const std::string& name, const std::string& kind) {
  const at::Tensor& tensor = by_name_.at(name);
  if (!graph_name.empty()) by_graph_name_.emplace(graph_name, tensor);
  names_.emplace(tensor.unsafeGetTensorImpl(), name);
  if (kind == "parameter") return add_once(parameters_, name, tensor);
  if (kind == "buffer") return add_once(buffers_, name, tensor);
  constants_.push_back(tensor);
}

void ExportedState::settle_type() {
  std::map<at::ScalarType, std::int64_t> elements;
  for (const auto& [name, tensor] : parameters_) {
    if (tensor.is_floating_point()) elements[tensor.scalar_type()] += tensor.numel();
  }
  std::int64_t most = -1;
  for (const auto& [type, count] : elements) {
    if (count > most) {
      most = count;
      type_ = type;
    }
  }
}

std::string ExportedState::name_of(const at::Tensor& tensor) const {
  const auto found = names_.find(tensor.unsafeGetTensorImpl());
  return found == names_.end() ? std::string() : found->second;
}

bool ExportedState::is_buffer(const at::Tensor& tensor) const {
  return std::ranges::any_of(buffers_, [&](const NamedTensor& one) { return one.tensor.is_same(tensor); });
}

at::Tensor ExportedState::buffer(const std::string& name) const {
  const auto found = std::ranges::find(buffers_, name, &NamedTensor::name);
  return found == buffers_.end() ? at::Tensor() : found->tensor;
}

}  // namespace onebatch
