// The names of a graph's values while it is compiled.
#pragma once

#include "trainer/io/json_reader.hpp"
#include "trainer/models/exported_calls.hpp"

#include <map>
#include <optional>

namespace onebatch {

class GraphNames {
 public:
  /// Of this graph, which says what types its tensors had.
  explicit GraphNames(const JsonReader& graph) : graph_(graph) {}

  /// Throws UserError where the name is taken.
  Slot define(const std::string& name, const JsonReader& where);
  /// The name of a tensor that no call makes: a parameter, a buffer or a constant.
  void define_fixed(const std::string& name, const at::Tensor& tensor, const JsonReader& where);

  /// A value that the program has no name for.
  Operand define_own();

  /// A value that was defined before; throws UserError where there is none.
  [[nodiscard]] Operand read(const std::string& name, const JsonReader& where) const;
  /// Undefined: the name is a slot's.
  [[nodiscard]] at::Tensor fixed(const std::string& name) const;
  /// The type that a tensor had when it was exported; none: the program does not say.
  [[nodiscard]] std::optional<at::ScalarType> type_of(const std::string& name) const;
  /// Its sizes as they were exported, [numbers or symbols]; none: the program does not say.
  [[nodiscard]] std::optional<JsonReader> sizes_of(const std::string& name) const;
  [[nodiscard]] std::size_t num_slots() const { return static_cast<std::size_t>(next_); }

 private:
  [[nodiscard]] std::optional<JsonReader> described(const std::string& name) const;
  void check_free(const std::string& name, const JsonReader& where) const;

  JsonReader graph_;
  std::map<std::string, Slot> slots_;
  std::map<std::string, at::Tensor> fixed_;
  Slot next_ = 0;
};

}  // namespace onebatch
