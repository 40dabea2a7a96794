#include "trainer/models/exported_layers.hpp"

namespace onebatch {
namespace {

std::optional<std::int64_t> padding_of(const Call& call, const c10::FunctionSchema& schema) {
  const auto index = schema.argumentIndexWithName("padding_idx");
  if (!index) return std::nullopt;
  const c10::IValue& value = call.operands[static_cast<std::size_t>(*index)].constant;
  return value.isInt() && value.toInt() >= 0 ? std::optional(value.toInt()) : std::nullopt;
}

// transpose's two dimensions, or permute's.
std::vector<std::int64_t> dimensions_of(const Call& call) {
  std::vector<std::int64_t> dimensions;
  for (std::size_t i = 1; i < call.operands.size(); ++i) {
    const c10::IValue& value = call.operands[i].constant;
    if (value.isInt()) dimensions.push_back(value.toInt());
    if (value.isIntList()) dimensions = value.toIntVector();
  }
  return dimensions;
}

}  // namespace

void ProgramLayers::note(const Call& call, const c10::FunctionSchema& schema, std::size_t block) {
  if (const HandsOn how = hands_on(schema.name()); how != HandsOn::no && !call.operands.empty()) {
    if (auto read = read_of(call.operands[0], block)) hand_on(call, std::move(*read), how, block);
    return;
  }
  LayerCall found{.name = schema.name(), .reads = {}, .padding_index = padding_of(call, schema)};
  for (std::size_t i = 0; i < call.operands.size(); ++i) {
    const auto add = [&](const Operand& operand) {
      auto read = read_of(operand, block);
      if (!read) return;
      read->argument = schema.arguments()[i].name();
      found.reads.push_back(std::move(*read));
    };
    add(call.operands[i]);
    for (const Operand& item : call.operands[i].items) add(item);
  }
  if (!found.reads.empty()) calls_.push_back(std::move(found));
}

std::optional<ReadTensor> ProgramLayers::read_of(const Operand& operand, std::size_t block) const {
  if (operand.form == Operand::Form::constant && operand.constant.isTensor() && operand.constant.toTensor().defined())
    return ReadTensor{.argument = "", .tensor = operand.constant.toTensor()};
  if (operand.form != Operand::Form::value) return std::nullopt;
  const auto found = handed_on_.find({block, operand.slot});
  return found == handed_on_.end() ? std::nullopt : std::optional(found->second);
}

void ProgramLayers::hand_on(const Call& call, ReadTensor read, HandsOn how, std::size_t block) {
  if (how == HandsOn::by_arguments && !swaps_dimensions(dimensions_of(call))) return;
  if (how != HandsOn::as_it_is && read.tensor.dim() != 2) return;
  if (how != HandsOn::as_it_is) read.transposed = !read.transposed;
  for (const Result& result : call.results) handed_on_.insert_or_assign({block, result.slot}, read);
}

}  // namespace onebatch
