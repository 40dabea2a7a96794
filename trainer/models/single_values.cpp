#include "trainer/models/single_values.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <utility>

namespace onebatch {
namespace {

thread_local bool taken = false;

// is_refused(what the script itself would raise an error for)
const torch::jit::RegisterOperators k_operator({torch::jit::Operator(
    "onebatch::is_refused(bool by_itself) -> bool",
    [](torch::jit::Stack& stack) {
      const bool by_itself = torch::jit::pop(stack).toBool();
      torch::jit::push(stack, by_itself && !takes_single_values());
    },
    c10::AliasAnalysisKind::CONSERVATIVE)});

bool raises(const torch::jit::Node& node) {
  return std::ranges::any_of(node.blocks(), [](const torch::jit::Block* block) {
    return std::ranges::any_of(
        block->nodes(), [](const torch::jit::Node* inner) { return inner->kind() == c10::prim::RaiseException; });
  });
}

void ask_first(torch::jit::Graph& graph) {
  for (torch::jit::Node* node : graph.nodes()) {
    if (node->kind() != c10::prim::If || !raises(*node)) continue;
    torch::jit::Node* asks = graph.create(c10::Symbol::fromQualString("onebatch::is_refused"), {node->input(0)});
    asks->output()->setType(c10::BoolType::get());
    asks->insertBefore(node);
    node->replaceInput(0, asks->output());
  }
}

}  // namespace

SingleValues::SingleValues() : outer_(std::exchange(taken, true)) {}

SingleValues::~SingleValues() {
  taken = outer_;
}

bool takes_single_values() {
  return taken;
}

void ask_before_refusing_single_values(const torch::jit::Module& module) {
  for (torch::jit::Function* function : module._ivalue()->compilation_unit()->get_functions()) {
    if (function->name() != "_verify_batch_size") continue;
    function->ensure_defined();
    ask_first(*torch::jit::toGraphFunction(*function).graph());
  }
}

}  // namespace onebatch
