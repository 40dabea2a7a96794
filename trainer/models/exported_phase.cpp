#include "trainer/models/exported_phase.hpp"

#include "trainer/models/exported_schema.hpp"
#include "trainer/models/single_values.hpp"

#include <ATen/ScalarOps.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace onebatch {
namespace {

using c10::FunctionSchema;

constexpr const char* k_in_training =
    ": export it in training mode: torch.export.save(torch.export.export(model.train(), …), \"model.pt2\")";

Operand* argument(Call& call, const FunctionSchema& schema, const char* name) {
  const auto index = schema.argumentIndexWithName(name);
  return index ? &call.operands[static_cast<std::size_t>(*index)] : nullptr;
}

bool is_constant(const Operand* operand) {
  return operand != nullptr && operand->form == Operand::Form::constant;
}

bool is_zero(const Operand* operand) {
  return is_constant(operand) && operand->constant.isDouble() && operand->constant.toDouble() == 0.0;
}

bool is_flag(const Operand* operand) {
  return is_constant(operand) && operand->constant.isBool();
}

bool is_none(const Operand* operand) {
  return is_constant(operand) &&
         (operand->constant.isNone() || (operand->constant.isTensor() && !operand->constant.toTensor().defined()));
}

bool has_tensors(const Call& call, const FunctionSchema& schema) {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].type()->kind() == c10::TypeKind::TensorType && !is_none(&call.operands[i])) return true;
  }
  return false;
}

// Weight standardisation calls batch_norm, too: of a parameter all sizes are numbers.
bool may_have_samples(const JsonReader& node, const GraphNames& names) {
  const JsonReader inputs = node.field("inputs");
  for (std::size_t i = 0; i < inputs.array_size("arguments"); ++i) {
    if (inputs.item(i).field("name").text() != "input") continue;
    const auto [tag, value] = tagged(inputs.item(i).field("arg"));
    const auto sizes = tag == "as_tensor" ? names.sizes_of(value.field("name").text()) : std::nullopt;
    if (!sizes) return true;
    for (std::size_t d = 0; d < sizes->array_size("sizes"); ++d) {
      if (tagged(sizes->item(d)).tag != "as_int") return true;
    }
    return false;
  }
  return true;
}

void set_following(Operand& operand, Follows follows) {
  operand.follows = follows;
  operand.written = operand.constant;
}

void refuse_taken_apart(const std::string& name, const JsonReader& node) {
  static constexpr std::array k_apart = {
      "aten::native_dropout",           "aten::native_batch_norm",
      "aten::cudnn_batch_norm",         "aten::_native_batch_norm_legit_functional",
      "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_no_training"};
  static constexpr std::array k_evaluation = {"aten::_transformer_encoder_layer_fwd",
                                              "aten::_native_multi_head_attention"};
  if (std::ranges::find(k_apart, name) != k_apart.end())
    node.fail("calls " + name +
              ", which is what torch.export's run_decompositions makes of a layer: save the program without it");
  if (std::ranges::find(k_evaluation, name) != k_evaluation.end())
    node.fail("calls " + name + ", which cannot be trained, since the model was in eval() mode" + k_in_training);
}

// What PyTorch's BatchNorm modules ask for before they call the operator, and no program has in it.
void refuse_single_values(const c10::Stack& stack, std::size_t training) {
  if (!stack[training].toBool() || takes_single_values()) return;
  const at::Tensor& input = stack[0].toTensor();
  if (input.dim() < 2 || input.numel() != input.size(1)) return;
  throw std::invalid_argument("Expected more than 1 value per channel when training, got input size " +
                              c10::str(input.sizes()));
}

}  // namespace

std::string RunLiterals::name_of(const Operand& operand) const {
  if (operand.form != Operand::Form::constant || !operand.constant.isTensor()) return "";
  return operand.constant.toTensor().defined() ? state_.name_of(operand.constant.toTensor()) : "";
}

void RunLiterals::look_at(Call& call, const FunctionSchema& schema, const JsonReader& node, const GraphNames& names) {
  refuse_taken_apart(schema.name(), node);
  if (schema.name() == "aten::batch_norm")
    look_at_batch_norm(call, schema, node, may_have_samples(node, names) ? Normalises::samples : Normalises::weights);
  look_at_flags(call, schema, node);
  look_at_counter(call, schema);
  look_at_placement(call, schema);
}

void RunLiterals::look_at_batch_norm(Call& call, const FunctionSchema& schema, const JsonReader& node,
                                     Normalises what) {
  BatchNormCall found;
  const auto note = [&](const char* name, std::vector<std::string>& names) {
    if (const std::string tensor = name_of(*argument(call, schema, name)); !tensor.empty()) names.push_back(tensor);
  };
  for (const char* name : {"weight", "bias"}) note(name, found.affine);
  for (const char* name : {"running_mean", "running_var"}) note(name, found.statistics);
  const auto& own = found.statistics.empty() ? found.affine : found.statistics;
  const std::string prefix = own.empty() ? std::string() : own.front().substr(0, own.front().rfind('.') + 1);
  if (!found.statistics.empty()) found.statistics.push_back(prefix + "num_batches_tracked");
  found.layer =
      prefix.empty() ? fmt::format("batch_norm {}", batch_norms_.size()) : prefix.substr(0, prefix.size() - 1);
  Operand* training = argument(call, schema, "training");
  if (!is_flag(training)) node.fail("calls batch_norm with a training flag that is computed");
  const bool has_statistics = !is_none(argument(call, schema, "running_mean"));
  const bool of_weights = what == Normalises::weights && !has_statistics;
  found.of_the_batch = use_ == BatchNormUse::as_written && training->constant.toBool() && !of_weights;
  batch_norms_.push_back(found);
  if (of_weights) return;
  const Operand* momentum = argument(call, schema, "momentum");
  if (use_ == BatchNormUse::as_written && has_statistics && momentum->constant.isDouble() &&
      momentum->constant.toDouble() == 1.0)
    node.fail(
        "has momentum 1, as a program has it of momentum = None: its running statistics would be the last "
        "batch's alone; give the BatchNorm a momentum");
  if (use_ == BatchNormUse::frozen) {
    if (!has_statistics)
      node.fail(
          "has no running statistics to keep to (track_running_stats = False), and batch_norm.frozen = true: "
          "leave batch_norm.frozen out, or export the model with track_running_stats = True");
    training->constant = false;
    return;
  }
  if (has_statistics && !training->constant.toBool())
    node.fail("is a BatchNorm that is switched to evaluation, since the model was in eval() mode" +
              std::string(k_in_training) + "; or write batch_norm.frozen = true to train with its running statistics");
  const auto index = static_cast<std::size_t>(*schema.argumentIndexWithName("training"));
  call.make = [make = std::move(call.make), index](torch::jit::Stack& stack) {
    refuse_single_values(stack, index);
    make(stack);
  };
}

// Training flags are the phase's; attention has its probability alone.
void RunLiterals::look_at_flags(Call& call, const FunctionSchema& schema, const JsonReader& node) {
  const bool is_batch_norm = schema.name() == "aten::batch_norm";
  if (is_batch_norm && (use_ == BatchNormUse::frozen || is_none(argument(call, schema, "running_mean")))) return;
  for (const char* name : {"training", "train", "use_input_stats"}) {
    Operand* flag = argument(call, schema, name);
    if (!is_flag(flag)) continue;
    const bool nothing_to_drop = is_zero(argument(call, schema, "p")) || is_zero(argument(call, schema, "dropout"));
    if (nothing_to_drop) {  // and on a GPU no recurrent layer has a backward without it
      flag->constant = true;
      continue;
    }
    if (std::string(name) == "use_input_stats" && is_none(argument(call, schema, "running_mean"))) continue;
    if (!flag->constant.toBool())
      node.fail("is switched to evaluation, since the model was in eval() mode" + std::string(k_in_training));
    set_following(*flag, Follows::training);
  }
  Operand* probability = argument(call, schema, "dropout_p");
  if (is_constant(probability) && probability->constant.isDouble() && !is_zero(probability))
    set_following(*probability, Follows::probability);
}

// BatchNorm counts its batches in training alone.
void RunLiterals::look_at_counter(Call& call, const FunctionSchema& schema) {
  if (schema.name() != "aten::add_" && schema.name() != "aten::add") return;
  if (!name_of(call.operands[0]).ends_with("num_batches_tracked")) return;
  Operand& count = call.operands[1];
  if (!is_constant(&count) || !count.constant.isTensor()) return;
  const at::Scalar more = count.constant.toTensor().item();
  if (use_ == BatchNormUse::frozen) {
    count.constant = at::native::wrapped_scalar_tensor(at::Scalar(std::int64_t{0}));
    return;
  }
  count.follows = Follows::count;
  count.written = more;
}

// Where tensors are made, and in which type if it is the program's.
void RunLiterals::look_at_placement(Call& call, const FunctionSchema& schema) const {
  for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& due = schema.arguments()[i];
    Operand& operand = call.operands[i];
    const bool is_type = due.real_type()->str().find("ScalarType") != std::string::npos;
    if (is_type && is_constant(&operand) && operand.constant.isInt()) {
      const auto written = static_cast<at::ScalarType>(operand.constant.toInt());
      if (written == mode_.program_type || c10::isComplexType(written)) set_following(operand, Follows::type);
    }
    // Without a tensor to follow nothing else says where.
    if (due.name() == "device" && is_constant(&operand) && operand.constant.isNone() && !has_tensors(call, schema))
      operand.follows = Follows::device;
  }
}

void RunLiterals::give_type(Call& call, const FunctionSchema& schema, at::ScalarType made) const {
  Operand* type = argument(call, schema, "dtype");
  if (type == nullptr || !is_none(type) || made != mode_.program_type || has_tensors(call, schema)) return;
  type->constant = static_cast<std::int64_t>(made);
  set_following(*type, Follows::type);
}

}  // namespace onebatch
