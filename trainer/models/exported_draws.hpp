// Where an exported program's random layers have their samples: its sizes say which of them vary with the batch.
#pragma once

#include "trainer/models/exported_names.hpp"

#include <ATen/core/function_schema.h>

#include <optional>
#include <string>
#include <vector>

namespace onebatch {

class ProgramDraws {
 public:
  /// `batch`: the symbols of the batch's size. `mode` outlives every call that is looked at.
  ProgramDraws(std::vector<std::string> batch, const RunMode& mode) : batch_(std::move(batch)), mode_(mode) {}

  /// A dropout or an attention whose samples do not come first is told where they are, or that all share what it draws.
  /// Paths that are dropped (aten::bernoulli_ of one probability) are drawn as dropout is, and all kept in evaluation.
  void look_at(Call& call, const c10::FunctionSchema& schema, const JsonReader& node, const GraphNames& names) const;

 private:
  std::vector<std::string> batch_;
  const RunMode& mode_;
};

/// Whether a call is such a one of aten::bernoulli_.
bool drops_paths_by_sample(const JsonReader& node, const GraphNames& names, const std::vector<std::string>& batch);

}  // namespace onebatch
