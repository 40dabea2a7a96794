// What an exported program takes and returns: the inputs' sizes as they were exported, the outputs' names.
#pragma once

#include "trainer/io/json_reader.hpp"

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

/// A size that is fixed, or `factor` times one that may be any in its range.
struct ProgramSize {
  std::int64_t fixed = 0;
  std::string symbol;  // empty: it is fixed
  std::int64_t factor = 1;
};

/// Throws UserError where it is computed of others in another way.
ProgramSize size_in(const JsonReader& size);

struct ProgramInput {
  std::string name;        // the forward's own
  std::string graph_name;  // the graph's
  at::ScalarType type = at::kFloat;
  std::vector<ProgramSize> sizes;
};

struct ProgramRange {
  std::int64_t least = 0;
  std::int64_t most = INT64_MAX;
};

class ProgramInputs {
 public:
  /// Of models/model.json. Throws UserError, which begins with `file`, where an input is no tensor.
  ProgramInputs(const JsonReader& program, std::string file);

  [[nodiscard]] const std::vector<ProgramInput>& all() const { return inputs_; }
  [[nodiscard]] const std::map<std::string, ProgramRange>& ranges() const { return ranges_; }
  /// Symbols that the inputs' first dimensions are multiples of.
  [[nodiscard]] std::vector<std::string> batch_symbols() const;
  /// Before any data: that the batch is no fixed number. Throws UserError with the line of Python that mends it.
  void check_batch() const;
  /// And that the first input's sample is of this shape.
  void check_sample(const std::vector<std::int64_t>& sample_shape) const;
  /// Of one forward. `described`: where they are named, for the message.
  void check(const std::vector<at::Tensor>& given, const std::string& described) const;
  /// Whole numbers and booleans in the types that they were exported in. Throws UserError where such a type cannot hold
  /// one of them.
  [[nodiscard]] std::vector<at::Tensor> in_own_types(const std::vector<at::Tensor>& given) const;

 private:
  using Bound = std::map<std::string, std::int64_t>;
  void check_guards(const std::vector<at::Tensor>& given) const;
  void check_size(const ProgramInput& input, std::size_t dimension, std::int64_t size, Bound& bound) const;
  [[noreturn]] void refuse(const ProgramInput& input, std::size_t dimension, const std::string& what) const;
  [[nodiscard]] std::string mended(const ProgramInput& input, std::size_t dimension) const;

  std::string file_;
  std::vector<ProgramInput> inputs_;
  std::map<std::string, ProgramRange> ranges_;
  std::vector<std::string> guards_;  // of sizes, beside the ranges
};

struct ProgramOutput {
  std::string name;       // as the forward names it: "logits", or its place: "0"
  std::size_t index = 0;  // among the graph's outputs
  bool is_tensor = true;
};

/// A buffer that the program makes anew and gives back.
struct BufferUpdate {
  std::string buffer;
  std::size_t index = 0;  // among the graph's outputs
};

struct ProgramOutputs {
  std::vector<ProgramOutput> outputs;
  std::vector<BufferUpdate> updates;
};

/// Throws UserError where the program gives back what no training can use.
ProgramOutputs outputs_of(const JsonReader& program);

/// The one that `wanted` names; "": a single tensor, "logits", or the first. Throws UserError, which begins with
/// `file`.
std::size_t chosen_output(const ProgramOutputs& outputs, const std::string& wanted, const std::string& file);

}  // namespace onebatch
