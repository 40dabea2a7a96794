// An exported program's tensors: parameters, buffers and constants, by name.
#pragma once

#include "trainer/models/exported_archive.hpp"
#include "trainer/models/model.hpp"

#include <map>
#include <set>

namespace onebatch {

class ExportedState {
 public:
  /// On the CPU, in the types that the file has; takes the archive's bytes as it goes, so that one copy is there at a
  /// time. Throws UserError, which begins with `file`.
  ExportedState(ExportedArchive& archive, const std::string& file);

  /// Of the graph's inputs ("p_fc_weight") that are the program's own.
  [[nodiscard]] const std::map<std::string, at::Tensor>& by_graph_name() const { return by_graph_name_; }
  /// The name of a parameter, a buffer or a constant; empty: it is none.
  [[nodiscard]] std::string name_of(const at::Tensor& tensor) const;
  [[nodiscard]] bool is_buffer(const at::Tensor& tensor) const;
  /// Undefined: there is none.
  [[nodiscard]] at::Tensor buffer(const std::string& name) const;

  /// Each once, in the order of the program's inputs.
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }
  [[nodiscard]] const std::vector<NamedTensor>& buffers() const { return buffers_; }
  [[nodiscard]] const std::vector<at::Tensor>& constants() const { return constants_; }
  /// All names, without buffers that are not persistent.
  [[nodiscard]] const std::vector<NamedTensor>& state_dict() const { return state_dict_; }
  /// The floating type of most of the parameters' elements.
  [[nodiscard]] at::ScalarType type() const { return type_; }

 private:
  void take_signature(const nlohmann::json& program, const std::string& file);
  void take_input(const std::string& graph_name, const std::string& name, const std::string& kind);
  void settle_type();

  std::map<std::string, at::Tensor> by_name_;
  std::set<std::string> parameter_names_;
  std::map<std::string, at::Tensor> by_graph_name_;
  std::map<const c10::TensorImpl*, std::string> names_;
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
  std::vector<at::Tensor> constants_;
  std::vector<NamedTensor> state_dict_;
  at::ScalarType type_ = at::kFloat;
};

}  // namespace onebatch
