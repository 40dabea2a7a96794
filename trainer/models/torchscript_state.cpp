#include "trainer/models/torchscript_state.hpp"

#include "trainer/io/named_tensors.hpp"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <functional>
#include <sstream>

namespace onebatch {
namespace {

using VisitAttribute = std::function<void(const std::string& name, const c10::IValue& value)>;

void for_each_attribute(const torch::jit::Module& module, const VisitAttribute& visit) {
  for (const auto& part : module.named_modules()) {
    const auto& type = *part.value.type();
    for (std::size_t i = 0; i < type.numAttributes(); ++i) {
      if (type.is_parameter(i) || type.is_buffer(i) || type.getAttribute(i)->is_module()) continue;
      visit(part.name.empty() ? type.getAttributeName(i) : part.name + "." + type.getAttributeName(i),
            part.value._ivalue()->getSlot(i));
    }
  }
}

// IValue::getSubValues() throws at a Device.
void add_tensors(const c10::IValue& value, std::vector<at::Tensor>& tensors) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) tensors.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add_tensors(tensor, tensors);
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) add_tensors(item, tensors);
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) add_tensors(item, tensors);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) add_tensors(entry.value(), tensors);
  } else if (value.isObject()) {
    for (const c10::IValue& slot : value.toObjectRef().slots()) add_tensors(slot, tensors);
  }
}

void add_constants(const torch::jit::Block* block, std::vector<at::Tensor>& tensors) {
  for (const torch::jit::Node* node : block->nodes()) {
    if (node->kind() == c10::prim::Constant) {
      if (const auto value = torch::jit::toIValue(node->output())) add_tensors(*value, tensors);
    }
    for (const torch::jit::Block* inner : node->blocks()) add_constants(inner, tensors);
  }
}

std::string text_of(const c10::IValue& value) {
  std::vector<at::Tensor> tensors;
  add_tensors(value, tensors);
  std::ostringstream text;
  for (const at::Tensor& tensor : tensors) text << to_text(digest_of(std::vector<NamedTensor>{{"", tensor}})) << ' ';
  if (!value.isTensor()) text << value;
  return text.str();
}

}  // namespace

std::vector<at::Tensor> literals_of(const torch::jit::Module& module) {
  std::vector<at::Tensor> tensors;
  for_each_attribute(module,
                     [&](const std::string& /*name*/, const c10::IValue& value) { add_tensors(value, tensors); });
  const auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  add_constants(graph->block(), tensors);
  return tensors;
}

std::vector<NamedText> attributes_of(const torch::jit::Module& module) {
  std::vector<NamedText> attributes;
  for_each_attribute(module, [&](const std::string& name, const c10::IValue& value) {
    attributes.push_back({name, text_of(value)});
  });
  return attributes;
}

}  // namespace onebatch
