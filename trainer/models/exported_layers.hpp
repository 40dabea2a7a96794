// Which operators of an exported program read its tensors, and as what.
#pragma once

#include "trainer/models/exported_calls.hpp"
#include "trainer/models/layer_calls.hpp"

#include <ATen/core/function_schema.h>

#include <map>
#include <utility>

namespace onebatch {

class ProgramLayers {
 public:
  /// A call of an operator in a block, whose results have their slots. In the program's order.
  void note(const Call& call, const c10::FunctionSchema& schema, std::size_t block);

  [[nodiscard]] const std::vector<LayerCall>& calls() const { return calls_; }

 private:
  [[nodiscard]] std::optional<ReadTensor> read_of(const Operand& operand, std::size_t block) const;
  void hand_on(const Call& call, ReadTensor read, HandsOn how, std::size_t block);

  std::vector<LayerCall> calls_;
  std::map<std::pair<std::size_t, Slot>, ReadTensor> handed_on_;  // results that are tensors of the model
};

}  // namespace onebatch
