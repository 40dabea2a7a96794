#include "trainer/models/script_graph.hpp"

#include "trainer/base/error.hpp"
#include "trainer/models/run_type.hpp"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace onebatch {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;
namespace attr = c10::attr;

enum class Origin { trace, script, unknown };

// An operator that was traced remembers the Python call stack, whole; one of a script a place in its function's source.
Origin origin_of(const Node& node) {
  torch::jit::SourceRange range = node.sourceRange();
  bool generated = false;
  for (auto before = range.findSourceRangeThatGenerated(); before; before = range.findSourceRangeThatGenerated()) {
    range = *before;
    generated = true;
  }
  if (!generated || !range.source()) return Origin::unknown;
  const std::size_t size = range.source()->size();
  return size > 0 && range.start() == 0 && range.end() == size ? Origin::trace : Origin::script;
}

void collect(torch::jit::Block* block, std::vector<Node*>& nodes) {
  for (Node* node : block->nodes()) {
    nodes.push_back(node);
    for (torch::jit::Block* inner : node->blocks()) collect(inner, nodes);
  }
}

bool calls(torch::jit::Graph& graph) {
  std::vector<Node*> nodes;
  collect(graph.block(), nodes);
  return std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->kind() == prim::CallFunction ||
           (node->kind() == prim::CallMethod && node->input(0)->type()->kind() == c10::TypeKind::ClassType);
  });
}

// Once is not enough: without the executor's optimisation what is inlined has calls of its own.
void inline_all(torch::jit::Graph& graph) {
  constexpr int k_deepest = 100;
  for (int depth = 0; depth < k_deepest && calls(graph); ++depth) torch::jit::Inline(graph);
}

std::optional<std::size_t> index_of(const Node& node, std::string_view argument) {
  const c10::FunctionSchema* schema = node.maybeSchema();
  if (schema == nullptr) return std::nullopt;
  for (std::size_t i = 0; i < schema->arguments().size(); ++i) {
    if (schema->arguments()[i].name() == argument) return i;
  }
  return std::nullopt;
}

// None: it has no such argument, or not as a constant.
template <typename T>
std::optional<T> constant(const Node& node, std::string_view argument) {
  const auto index = index_of(node, argument);
  if (!index) return std::nullopt;
  const auto value = torch::jit::toIValue(node.input(*index));
  return value && !value->isNone() ? std::optional<T>(value->to<T>()) : std::nullopt;
}

bool is_none(const Value* value) {
  if (value->type()->kind() == c10::TypeKind::NoneType) return true;
  const Node* node = value->node();
  if (node->kind() != prim::If) return false;
  return is_none(node->blocks()[0]->outputs()[value->offset()]) &&
         is_none(node->blocks()[1]->outputs()[value->offset()]);
}

// The full name of the attribute that a value is: "layer1.0.bn1.weight".
std::optional<std::string> name_of(const Value* value, const Value* self) {
  const Node* node = value->node();
  if (node->kind() == prim::GetAttr) {
    if (node->input(0) == self) return node->s(attr::name);
    const auto outer = name_of(node->input(0), self);
    return outer ? std::optional(*outer + "." + node->s(attr::name)) : std::nullopt;
  }
  if (node->kind() == aten::add_ || node->kind() == prim::unchecked_cast ||
      node->kind() == prim::unchecked_unwrap_optional)
    return name_of(node->input(0), self);
  if (node->kind() != prim::If) return std::nullopt;
  for (const torch::jit::Block* block : node->blocks()) {
    if (auto name = name_of(block->outputs()[value->offset()], self)) return name;
  }
  return std::nullopt;
}

// The module whose code the operator stands in.
std::string caller_of(const Node& node) {
  std::string name;
  if (!node.callstack()) return name;
  for (const auto& frame : (*node.callstack())->vec()) {
    const auto& instance = std::get<torch::jit::kModuleInstanceInfo>(frame);
    if (!instance || instance->instance_name() == "SELF" || instance->instance_name() == "INSTANCE_NAME_UNKNOWN")
      continue;
    name += (name.empty() ? "" : ".") + instance->instance_name();
  }
  return name;
}

std::string place_of(const Node& node) {
  const std::string caller = caller_of(node);
  return std::string(node.kind().toQualString()) + (caller.empty() ? "" : " in " + caller);
}

bool is_batch_norm(const Node& node) {
  return node.kind() == aten::batch_norm || node.kind() == aten::native_batch_norm ||
         node.kind() == aten::_batch_norm_impl_index;
}

bool is_number(const Value* value) {
  const auto tensor = value->node()->kind() == prim::Constant ? torch::jit::toIValue(value) : std::nullopt;
  return tensor && tensor->isTensor() && tensor->toTensor().dim() == 0;
}

}  // namespace

ScriptGraph::ScriptGraph(const torch::jit::Module& module, std::string file, BatchNormUse use)
    : module_(module),
      file_(std::move(file)),
      graph_(torch::jit::toGraphFunction(module.get_method("forward").function()).graph()) {
  inline_all(*graph_);
  torch::jit::LowerSimpleTuples(graph_);  // a traced module that is called twice hands its buffers on in them
  for (const at::Tensor& parameter : module_.parameters()) {
    if (!parameter.is_floating_point()) continue;
    traced_type_ = parameter.scalar_type();
    parameter_types_.insert(traced_type_);
  }
  std::vector<Node*> nodes;
  collect(graph_->block(), nodes);
  {
    const torch::jit::WithInsertPoint at_the_beginning(*graph_->nodes().begin());
    training_ = graph_->insertNode(graph_->createGetAttr(graph_->inputs()[0], "training"));
    device_ = graph_->insertConstant(c10::Device(c10::kCPU))->node();
    type_ = graph_->insertConstant(static_cast<std::int64_t>(traced_type_))->node();
  }
  bool attention_without_dropout = false;
  for (Node* node : nodes) {
    if (node->kind() == prim::Constant && node->output()->type()->isSubtypeOf(*c10::TensorType::get()))
      constants_.emplace(node, node->t(attr::value).scalar_type());
    if (is_batch_norm(*node)) note_batch_norm(node, use);
    const bool counts = node->kind() == aten::add_ &&
                        name_of(node->input(0), graph_->inputs()[0]).value_or("").ends_with("num_batches_tracked");
    const Origin origin = origin_of(*node);
    if (counts && (use == BatchNormUse::frozen || origin == Origin::trace)) {
      // One more batch, or none.
      const torch::jit::WithInsertPoint here(node);
      Value* const count = use == BatchNormUse::frozen ? graph_->insertConstant(std::int64_t{0})
                                                       : graph_->insert(aten::Int, {training_->output()});
      node->replaceInput(2, count);
    }
    if (use == BatchNormUse::frozen && is_batch_norm(*node)) continue;
    if (origin == Origin::script) continue;
    follow_phase(node);
    if (origin == Origin::unknown) continue;
    follow_run(node);
    attention_without_dropout |= constant<double>(*node, "dropout_p").value_or(1.0) == 0.0;
  }
  for (Node* node : nodes) {
    if (node->kind() == aten::_convolution && origin_of(*node) == Origin::trace) keep_own_switches(node);
  }
  if (attention_without_dropout && !drops_ && !module_.attr("training").toBool())
    refuse("it seems to be traced in eval() mode, where attention drops nothing");
}

void ScriptGraph::refuse(const std::string& what) const {
  throw UserError(file_ + ": " + what +
                  ": call model.train() before torch.jit.trace and before saving, or save torch.jit.script(model)");
}

void ScriptGraph::note_batch_norm(Node* node, BatchNormUse use) {
  BatchNormCall call;
  const auto note = [&](std::size_t index, std::vector<std::string>& names) {
    if (const auto name = name_of(node->input(index), graph_->inputs()[0])) names.push_back(*name);
  };
  for (const std::size_t index : {1U, 2U}) note(index, call.affine);
  for (const std::size_t index : {3U, 4U}) note(index, call.statistics);
  const auto& own = call.statistics.empty() ? call.affine : call.statistics;
  const std::string prefix = own.empty() ? std::string() : own.front().substr(0, own.front().rfind('.') + 1);
  if (!call.statistics.empty()) call.statistics.push_back(prefix + "num_batches_tracked");
  call.layer = prefix.empty() ? caller_of(*node) : prefix.substr(0, prefix.size() - 1);
  if (call.layer.empty()) call.layer = "forward";
  const auto flag = index_of(*node, "training");
  call.of_the_batch = use == BatchNormUse::as_written && constant<bool>(*node, "training").value_or(true);
  batch_norms_.push_back(call);
  if (use == BatchNormUse::as_written || !flag) return;
  if (is_none(node->input(3)) || is_none(node->input(4)))
    throw UserError(file_ + ": batch_norm.frozen = true, but the BatchNorm " + batch_norms_.back().layer +
                    " has no running statistics to keep to (track_running_stats = False): leave batch_norm.frozen out, "
                    "or save the model with track_running_stats = True");
  clear_flag(node, *flag);
}

void ScriptGraph::clear_flag(Node* node, std::size_t index) {
  const torch::jit::WithInsertPoint here(node);
  node->replaceInput(index, graph_->insertConstant(false));
}

// Training flags are the phase's; attention has its probability alone.
void ScriptGraph::follow_phase(Node* node) {
  static constexpr std::array<std::string_view, 3> k_flags = {"training", "train", "use_input_stats"};
  const bool traced = origin_of(*node) == Origin::trace;
  const auto check_known = [&] {
    if (!traced)
      throw UserError(file_ + ": it does not say whether " + place_of(*node) +
                      " was traced or scripted, and so whether its training flag is meant: save it again by "
                      "torch.jit.save, with debug files");
  };
  if (traced && is_batch_norm(*node) && constant<double>(*node, "momentum") == 1.0)
    throw UserError(file_ + ": " + place_of(*node) +
                    " was traced with momentum 1, as a trace has it of momentum = None: its running statistics would "
                    "be the last batch's alone; save torch.jit.script(model)");
  if (traced && (node->kind() == c10::Symbol::fromQualString("aten::_transformer_encoder_layer_fwd") ||
                 node->kind() == c10::Symbol::fromQualString("aten::_native_multi_head_attention")))
    refuse("it was traced in eval() mode: " + place_of(*node) + " cannot be trained");
  for (const std::string_view name : k_flags) {
    const auto flag = constant<bool>(*node, name);
    if (!flag) continue;
    const bool nothing_to_drop = constant<double>(*node, "p") == 0.0 || constant<double>(*node, "dropout") == 0.0;
    // Without running statistics there are no others, in any phase.
    const bool own_statistics = (name == "use_input_stats" || is_batch_norm(*node)) && is_none(node->input(3));
    if (nothing_to_drop || own_statistics) continue;
    check_known();
    if (!*flag)
      refuse("it was traced in eval() mode: " + place_of(*node) + " is switched to evaluation" +
             (is_batch_norm(*node) ? " (batch_norm.frozen = true trains with its running statistics)" : ""));
    drops_ = true;
    node->replaceInput(*index_of(*node, name), training_->output());
  }
  const double probability = constant<double>(*node, "dropout_p").value_or(0.0);
  if (probability == 0.0) return;
  check_known();
  drops_ = true;
  const torch::jit::WithInsertPoint here(node);
  Value* const in_training = graph_->insert(aten::Float, {training_->output()});
  node->replaceInput(*index_of(*node, "dropout_p"),
                     graph_->insert(aten::mul, {graph_->insertConstant(probability), in_training}));
}

// Where tensors are made, and in which type if it is the parameters'.
void ScriptGraph::follow_run(Node* node) {
  const auto device = index_of(*node, "device");
  if (!device || !constant<c10::Device>(*node, "device")) return;
  node->replaceInput(*device, device_->output());
  const auto type = index_of(*node, "dtype");
  if (!type || constant<std::int64_t>(*node, "dtype") != static_cast<std::int64_t>(traced_type_)) return;
  if (!is_number(node->input(0))) node->replaceInput(*type, type_->output());
}

// aten::convolution asks for them when it is called, as a model in Python does.
void ScriptGraph::keep_own_switches(Node* node) {
  constexpr std::size_t k_arguments = 9;
  Node* const plain = graph_->create(aten::convolution, node->inputs().slice(0, k_arguments), 1);
  plain->insertBefore(node);
  plain->copyMetadata(node);
  plain->output()->setType(node->output()->type());
  node->output()->replaceAllUsesWith(plain->output());
  node->destroy();
}

at::ScalarType ScriptGraph::type_in_run(at::ScalarType own, at::ScalarType run) const {
  return parameter_types_.contains(own) ? run : run_type(own, traced_type_, run);
}

void ScriptGraph::move_to(c10::Device device, at::ScalarType type) {
  device_->s_(attr::value, device.str());
  type_->i_(attr::value, static_cast<std::int64_t>(type));
  for (const auto& [node, own] : constants_) {
    const at::Tensor& tensor = node->t(attr::value);
    if (tensor.dim() > 0) node->t_(attr::value, tensor.to(device, type_in_run(own, type)));
  }
}

}  // namespace onebatch
