#include "trainer/models/script_layers.hpp"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>

namespace onebatch {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

class Reader {
 public:
  Reader(const torch::jit::Module& module, const torch::jit::Graph& graph)
      : module_(module), self_(graph.inputs()[0]) {}

  std::vector<LayerCall> calls;

  void look_at(const torch::jit::Block* block) {
    for (const Node* node : block->nodes()) {
      note(*node);
      for (const torch::jit::Block* inner : node->blocks()) look_at(inner);
    }
  }

 private:
  void note(const Node& node) {
    const c10::FunctionSchema* schema = node.maybeSchema();
    const std::string name = node.kind().toQualString();
    if (schema == nullptr || !name.starts_with("aten::") || hands_on(name) != HandsOn::no) return;
    LayerCall call{.name = name, .reads = {}};
    for (std::size_t i = 0; i < node.inputs().size() && i < schema->arguments().size(); ++i) {
      const std::string& argument = schema->arguments()[i].name();
      add(argument, node.input(i), call);
      const auto number = argument == "padding_idx" ? torch::jit::toIValue(node.input(i)) : std::nullopt;
      if (number && number->isInt() && number->toInt() >= 0) call.padding_index = number->toInt();
    }
    if (!call.reads.empty()) calls.push_back(std::move(call));
  }

  void add(const std::string& argument, const Value* value, LayerCall& call) const {
    if (value->node()->kind() == prim::ListConstruct) {
      for (const Value* item : value->node()->inputs()) add(argument, item, call);
      return;
    }
    bool transposed = false;
    const c10::IValue held = held_by(value, transposed);
    if (held.isTensor() && held.toTensor().defined()) call.reads.push_back({argument, held.toTensor(), transposed});
    if (!held.isList()) return;
    for (const c10::IValue& item : held.toListRef()) {
      if (item.isTensor() && item.toTensor().defined()) call.reads.push_back({argument, item.toTensor(), transposed});
    }
  }

  // None: it is no attribute.
  c10::IValue held_by(const Value* value, bool& transposed) const {
    if (value == self_) return module_._ivalue();
    const Node* node = value->node();
    if (node->kind() == prim::GetAttr) {
      const c10::IValue outer = held_by(node->input(0), transposed);
      const std::string& name = node->s(c10::attr::name);
      const bool has = outer.isObject() && outer.toObjectRef().type()->findAttribute(name);
      return has ? outer.toObjectRef().getAttr(name) : c10::IValue();
    }
    if (node->kind() == prim::unchecked_cast || node->kind() == prim::unchecked_unwrap_optional)
      return held_by(node->input(0), transposed);
    const HandsOn how = hands_on(node->kind().toQualString());
    if (how != HandsOn::no) return handed_on_by(*node, how, transposed);
    if (node->kind() != prim::If) return {};
    for (const torch::jit::Block* block : node->blocks()) {
      if (c10::IValue held = held_by(block->outputs()[value->offset()], transposed); !held.isNone()) return held;
    }
    return {};
  }

  c10::IValue handed_on_by(const Node& node, HandsOn how, bool& transposed) const {
    c10::IValue held = held_by(node.input(0), transposed);
    if (how == HandsOn::as_it_is) return held;
    const bool is_matrix = held.isTensor() && held.toTensor().defined() && held.toTensor().dim() == 2;
    if (!is_matrix || (how == HandsOn::by_arguments && !swaps_dimensions(dimensions_of(node)))) return {};
    transposed = !transposed;
    return held;
  }

  static std::vector<std::int64_t> dimensions_of(const Node& node) {
    std::vector<std::int64_t> dimensions;
    for (std::size_t i = 1; i < node.inputs().size(); ++i) {
      const auto value = torch::jit::toIValue(node.input(i));
      if (value && value->isInt()) dimensions.push_back(value->toInt());
      if (value && value->isIntList()) dimensions = value->toIntVector();
    }
    return dimensions;
  }

  torch::jit::Module module_;
  const Value* self_;
};

}  // namespace

std::vector<LayerCall> layer_calls_of(const torch::jit::Module& module) {
  auto graph = module.get_method("forward").graph()->copy();
  torch::jit::Inline(*graph);
  torch::jit::ConstantPropagation(graph);  // of what a script's functions ask first: whether there is a padding_idx
  Reader reader(module, *graph);
  reader.look_at(graph->block());
  return std::move(reader.calls);
}

}  // namespace onebatch
