#include "trainer/models/exported_compiler.hpp"

#include "trainer/models/exported_limits.hpp"
#include "trainer/models/exported_operands.hpp"
#include "trainer/models/exported_regions.hpp"
#include "trainer/models/exported_schema.hpp"
#include "trainer/models/exported_squeeze.hpp"
#include "trainer/models/exported_symbols.hpp"
#include "trainer/models/program_digest.hpp"

#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace onebatch {
namespace {

constexpr const char* k_operators = "torch.ops.aten.";

// Operators that no forward needs and that reach beyond tensors: files, the process, autograd's own bookkeeping.
bool is_forbidden(const std::string& name) {
  static constexpr std::array k_names = {"from_file",
                                         "set_",
                                         "set_data",
                                         "requires_grad_",
                                         "_backward",
                                         "retain_grad",
                                         "record_stream",
                                         "_print",
                                         "resize_",
                                         "resize_as_",
                                         "_resize_output_",
                                         "_make_dual",
                                         "_unpack_dual",
                                         "_use_cudnn_ctc_loss",
                                         "_cufft_set_plan_cache_max_size",
                                         "_cufft_clear_plan_cache"};
  return std::ranges::find(k_names, name) != k_names.end() || name.starts_with("_test_") || name.starts_with("_sym_");
}

c10::OperatorHandle operator_of(const std::string& target, const JsonReader& node) {
  const std::string name = target.substr(std::string(k_operators).size());
  const std::size_t dot = name.find('.');
  const std::string own = name.substr(0, dot);
  std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  if (overload == "default") overload.clear();
  const auto found = c10::Dispatcher::singleton().findSchema({"aten::" + own, overload});
  if (!found || is_forbidden(own))
    node.fail("calls " + target + ", which " + (found ? "no program may call" : "this LibTorch does not have") +
              ": write it with other operators, or as PyTorch 2.11 has it");
  return *found;
}

// On a device where a kernel lays its results out otherwise than where the program was exported, a view may not be
// possible.
void view_or_copy(torch::jit::Stack& stack, const c10::OperatorHandle& view, bool may_copy) {
  static const auto reshape = c10::Dispatcher::singleton().findSchemaOrThrow("aten::reshape", "");
  const at::Tensor& tensor = stack[0].toTensor();
  bool fits = !may_copy;
  if (!fits) {
    const auto shape = at::infer_size(stack[1].toIntVector(), tensor.numel());
    fits = at::detail::computeStride(tensor.sizes(), tensor.strides(), shape).has_value();
  }
  (fits ? view : reshape).callBoxed(stack);
}

bool gives_quotients(const std::string& name) {
  static constexpr std::array k_names = {"mul",  "div",  "true_divide", "add",        "sub",     "rsub",
                                         "pow",  "sqrt", "rsqrt",       "exp",        "exp2",    "log",
                                         "log2", "sin",  "cos",         "reciprocal", "sigmoid", "tanh"};
  return std::ranges::find(k_names, name.substr(std::string("aten::").size())) != k_names.end();
}

std::string name_of(const JsonReader& node, const std::string& target) {
  return node.has("name") ? target + " (" + node.field("name").text() + ")" : target;
}

}  // namespace

Block GraphCompiler::compile(const JsonReader& graph) {
  Scope scope = open(graph);
  const JsonReader inputs = graph.field("inputs");
  for (std::size_t i = 0; i < inputs.array_size("inputs"); ++i) {
    const auto [tag, value] = tagged(inputs.item(i));
    if (tag != "as_tensor") continue;  // a number that was fixed when the program was exported
    const std::string name = value.field("name").text();
    const auto known = state_.by_graph_name().find(name);
    if (known != state_.by_graph_name().end())
      scope.names.define_fixed(name, known->second, value);
    else
      scope.block.inputs.push_back(scope.names.define(name, value));
  }
  add_nodes(scope);
  close(scope);
  for (const View& view : views_) *view.may_copy = !memory_.is_written(view.of);
  for (Call& call : scope.block.calls) {
    for (const Result& result : call.results)
      call.is_pure = call.is_pure && !memory_.is_written(memory_.of(result.slot, scope.number));
  }
  return std::move(scope.block);
}

GraphCompiler::Scope GraphCompiler::open(const JsonReader& graph) {
  return {graph, GraphNames(graph), {}, num_blocks_++};
}

void GraphCompiler::add_nodes(Scope& scope) {
  const JsonReader nodes = scope.graph.field("nodes");
  for (std::size_t i = 0; i < nodes.array_size("calls"); ++i) add_node(scope, nodes.item(i));
  const JsonReader outputs = scope.graph.field("outputs");
  for (std::size_t i = 0; i < outputs.array_size("outputs"); ++i)
    scope.block.outputs.push_back(operand_of(outputs.item(i), scope.names));
}

void GraphCompiler::close(Scope& scope) {
  scope.block.num_slots = scope.names.num_slots();
  note_last_readers(scope.block);
}

void GraphCompiler::add_node(Scope& scope, const JsonReader& node) {
  const std::string target = node.field("target").text();
  if (is_check_of_export(target)) return;
  if (target.starts_with("torch.ops.aten._assert_scalar.")) return add_assertion(scope, node);
  if (target.starts_with("torch.ops.higher_order.")) return add_region(scope, node, target);
  if (symbol_operator(target)) return add_symbol(scope, node, target);
  if (target.starts_with(k_operators)) return add_operator(scope, node, target);
  node.fail("calls " + target +
            ", which is no operator of PyTorch itself: a custom operator has code, and a program has none");
}

void GraphCompiler::add_operator(Scope& scope, const JsonReader& node, const std::string& target) {
  const c10::OperatorHandle op = operator_of(target, node);
  const c10::FunctionSchema& schema = op.schema();
  Call call;
  call.name = name_of(node, target);
  call.make = [op](torch::jit::Stack& stack) { op.callBoxed(stack); };
  call.is_pure = !schema.is_mutable() && !op.hasTag(at::Tag::nondeterministic_seeded);
  take_arguments(scope, node, schema, call);
  literals_.look_at(call, schema, node, scope.names);
  draws_.look_at(call, schema, node, scope.names);
  keep_varying_sizes(call, schema, node, scope.names);
  convert_whole_numbers(scope, node, schema, call);
  take_results(scope, node, call);
  if (call.results.empty()) call.results.resize(schema.returns().size());
  if (call.results.size() != schema.returns().size())
    node.fail(fmt::format("takes {} results of {}, which has {}", call.results.size(), schema.name(),
                          schema.returns().size()));
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    const bool is_list = schema.returns()[i].type()->kind() == c10::TypeKind::ListType;
    if (is_list != call.results[i].is_list && (call.results[i].slot != k_no_slot || call.results[i].is_list))
      node.fail("takes a list for a value, or a value for a list, from " + schema.name());
  }
  if (schema.name() == "aten::view" && schema.overload_name().empty()) {
    const auto may_copy = std::make_shared<bool>(false);
    views_.push_back({memory_.of(call.operands[0], scope.number), may_copy});
    call.make = [op, may_copy](torch::jit::Stack& stack) { view_or_copy(stack, op, *may_copy); };
  }
  if (LimitLiterals limits(call, schema, mode_.program_type); !limits.empty()) {
    call.make = [op, limits = std::move(limits)](torch::jit::Stack& stack) {
      limits.fit(stack);
      op.callBoxed(stack);
    };
  }
  memory_.note(call, schema, scope.number);
  layers_.note(call, schema, scope.number);
  scope.block.calls.push_back(std::move(call));
}

void GraphCompiler::take_arguments(Scope& scope, const JsonReader& node, const c10::FunctionSchema& schema,
                                   Call& call) {
  const JsonReader inputs = node.field("inputs");
  std::map<std::string, std::size_t> given;
  for (std::size_t i = 0; i < inputs.array_size("arguments"); ++i) {
    const std::string name = inputs.item(i).field("name").text();
    if (!schema.argumentIndexWithName(name))
      inputs.item(i).fail("is called " + name + ", which " + schema.name() + " has not");
    if (!given.emplace(name, i).second) inputs.item(i).fail("is there twice: " + name);
  }
  for (const c10::Argument& due : schema.arguments()) {
    const auto found = given.find(due.name());
    if (found != given.end()) {
      call.operands.push_back(operand_for(due, inputs.item(found->second).field("arg"), scope.names));
      continue;
    }
    if (!due.default_value()) node.fail("lacks the argument " + due.name() + " of " + schema.name());
    call.operands.push_back({});
    call.operands.back().constant = *due.default_value();
  }
}

// Whole numbers that become the program's floating type: it is to be the run's.
void GraphCompiler::convert_whole_numbers(Scope& scope, const JsonReader& node, const c10::FunctionSchema& schema,
                                          Call& call) {
  const JsonReader outputs = node.field("outputs");
  if (outputs.array_size("outputs") != 1) return;
  const auto [made_tag, made] = tagged(outputs.item(0));
  if (made_tag != "as_tensor") return;
  const auto type = scope.names.type_of(made.field("name").text());
  if (!type) return;
  literals_.give_type(call, schema, *type);
  if (*type != mode_.program_type || !gives_quotients(schema.name())) return;
  std::vector<std::size_t> whole;
  const JsonReader inputs = node.field("inputs");
  for (std::size_t i = 0; i < inputs.array_size("arguments"); ++i) {
    const auto [tag, value] = tagged(inputs.item(i).field("arg"));
    if (tag != "as_tensor") continue;
    const auto given = scope.names.type_of(value.field("name").text());
    if (!given || !c10::isIntegralType(*given, /*includeBool=*/true)) return;
    whole.push_back(static_cast<std::size_t>(*schema.argumentIndexWithName(inputs.item(i).field("name").text())));
  }
  static const auto to = c10::Dispatcher::singleton().findSchemaOrThrow("aten::to", "dtype");
  for (const std::size_t index : whole) {
    Call convert;
    convert.name = call.name + ", its argument";
    convert.make = [](torch::jit::Stack& stack) { to.callBoxed(stack); };
    convert.operands.resize(to.schema().arguments().size());
    convert.operands[0] = call.operands[index];
    for (std::size_t i = 2; i < convert.operands.size(); ++i)
      convert.operands[i].constant = *to.schema().arguments()[i].default_value();
    convert.operands[1].written = convert.operands[1].constant = static_cast<std::int64_t>(mode_.program_type);
    convert.operands[1].follows = Follows::type;
    Operand converted = scope.names.define_own();
    convert.results.push_back({converted.slot, {}, false});
    call.operands[index] = converted;
    scope.block.calls.push_back(std::move(convert));
  }
}

void GraphCompiler::take_results(Scope& scope, const JsonReader& node, Call& call) {
  const JsonReader outputs = node.field("outputs");
  for (std::size_t i = 0; i < outputs.array_size("outputs"); ++i) {
    const auto [tag, value] = tagged(outputs.item(i));
    Result result;
    if (tag == "as_tensor") {
      result.slot = scope.names.define(value.field("name").text(), value);
    } else if (tag == "as_tensors") {
      result.is_list = true;
      for (std::size_t k = 0; k < value.array_size("tensors"); ++k)
        result.items.push_back(scope.names.define(value.item(k).field("name").text(), value));
    } else if (tag == "as_sym_int" || tag == "as_sym_float" || tag == "as_sym_bool") {
      if (value.has("as_name")) result.slot = scope.names.define(value.field("as_name").text(), value);
    } else if (tag != "as_none" && tag != "as_int" && tag != "as_float" && tag != "as_bool") {
      value.fail("is a result of the form \"" + tag + "\", which is not known");
    }
    call.results.push_back(std::move(result));
  }
}

void GraphCompiler::add_symbol(Scope& scope, const JsonReader& node, const std::string& target) {
  auto known = *symbol_operator(target);
  const JsonReader inputs = node.field("inputs");
  if (inputs.array_size("arguments") != known.arguments)
    node.fail(fmt::format("gives {} arguments to {}, which takes {}", inputs.json().size(), target, known.arguments));
  Call call;
  call.name = name_of(node, target);
  call.make = std::move(known.make);
  call.is_pure = true;
  for (std::size_t i = 0; i < known.arguments; ++i)
    call.operands.push_back(operand_of(inputs.item(i).field("arg"), scope.names));
  take_results(scope, node, call);
  if (call.results.size() != 1 || call.results[0].is_list) node.fail("has results that " + target + " has not");
  scope.block.calls.push_back(std::move(call));
}

void GraphCompiler::add_assertion(Scope& scope, const JsonReader& node) {
  const JsonReader inputs = node.field("inputs");
  if (inputs.array_size("arguments") != 2)
    node.fail("gives other arguments to an assertion than a condition and words");
  const auto [tag, words] = tagged(inputs.item(1).field("arg"));
  Call call;
  call.name = "an assertion";
  call.operands.push_back(operand_of(inputs.item(0).field("arg"), scope.names));
  call.make = [said = words.text()](torch::jit::Stack& stack) {
    if (!stack[0].toScalar().toBool()) throw UserError("the exported program does not hold for these inputs: " + said);
    stack.clear();
  };
  scope.block.calls.push_back(std::move(call));
}

void GraphCompiler::add_region(Scope& scope, const JsonReader& node, const std::string& target) {
  const JsonReader arguments = node.field("inputs");
  const Region region = region_of(target, arguments, mode_);
  const auto [tag, argument] = tagged(arguments.item(region.graph).field("arg"));
  if (tag != "as_graph") node.fail("has no graph, as " + target + " has");
  Scope inner = open(argument.field("graph"));
  const JsonReader inputs = inner.graph.field("inputs");
  if (inputs.array_size("inputs") + region.first_input != arguments.array_size("arguments"))
    node.fail("gives other arguments to its graph than that takes");
  Call call;
  call.name = name_of(node, target);
  for (std::size_t i = 0; i < inputs.json().size(); ++i) {
    const Operand given = operand_of(arguments.item(region.first_input + i).field("arg"), scope.names);
    const auto [form, input] = tagged(inputs.item(i));
    const bool is_tensor = form == "as_tensor";
    if (!is_tensor && !(form.starts_with("as_sym_") && input.has("as_name"))) continue;
    const std::string name = input.field(is_tensor ? "name" : "as_name").text();
    if (is_tensor && given.form == Operand::Form::constant && given.constant.isTensor()) {
      inner.names.define_fixed(name, given.constant.toTensor(), input);
      continue;
    }
    inner.block.inputs.push_back(inner.names.define(name, input));
    memory_.share(memory_.of(given, scope.number), memory_.of(inner.block.inputs.back(), inner.number));
    call.operands.push_back(given);
  }
  add_nodes(inner);
  take_results(scope, node, call);
  if (call.results.size() != inner.block.outputs.size()) node.fail("has other results than its graph");
  for (std::size_t i = 0; i < call.results.size(); ++i) {
    if (call.results[i].is_list) node.fail("has a list as its result");
    if (call.results[i].slot == k_no_slot) continue;
    memory_.share(memory_.of(inner.block.outputs[i], inner.number), memory_.of(call.results[i].slot, scope.number));
  }
  close(inner);
  call.region = std::make_shared<Block>(std::move(inner.block));
  call.make = [run = region.run, block = call.region](torch::jit::Stack& stack) { run(*block, stack); };
  scope.block.calls.push_back(std::move(call));
}

}  // namespace onebatch
