// Told of every call of one forward: notes what it draws, changes and takes from its batch.
#pragma once

#include "trainer/graph/call_facts.hpp"
#include "trainer/graph/examination.hpp"
#include "trainer/models/model.hpp"

#include <ATen/core/stack.h>

#include <map>
#include <set>
#include <unordered_map>

namespace onebatch {

/// "layer1.0.conv1" of "layer1.0.conv1.weight"; empty: of the model itself.
std::string parent_of(const std::string& name);

class Examiner {
 public:
  /// Of a model that is about to run on these inputs.
  Examiner(const Model& model, const std::vector<at::Tensor>& inputs);

  /// Makes the call.
  void record(const c10::OperatorHandle& op, torch::jit::Stack* stack);

  struct Place {
    std::string op;
    std::string layer;
  };
  struct Write {
    Place place;
    bool from_data = false;
  };

  /// Without what only a comparison of buffers shows.
  [[nodiscard]] const std::vector<Finding>& findings() const { return findings_; }
  /// Layers whose calls take the statistics of their batch, and the buffers that those update.
  [[nodiscard]] const std::vector<std::string>& batch_norm_layers() const { return batch_norm_layers_; }
  [[nodiscard]] const std::set<std::string>& statistics() const { return statistics_; }
  /// Buffers that an operator has written to.
  [[nodiscard]] const std::map<std::string, Write>& writes() const { return writes_; }
  /// What has made a tensor; nothing where no operator did.
  [[nodiscard]] Place maker_of(const at::Tensor& tensor) const;
  [[nodiscard]] bool is_from_data(const at::Tensor& tensor) const;

 private:
  const void* keep(const at::Tensor& tensor);
  [[nodiscard]] std::string name_of(const at::Tensor& tensor) const;
  void note_layer(const at::Tensor& tensor);
  void add(Trait trait, const c10::OperatorHandle& op, const std::string& tensor = {});
  void note_call(const c10::OperatorHandle& op, Arguments given);
  // Where what is written comes from: any of it from the batch.
  enum class Source { data, model };
  void note_writes(const c10::OperatorHandle& op, Arguments given, Source source);
  void note_write(const c10::OperatorHandle& op, const at::Tensor& tensor, Source source);

  std::unordered_map<const void*, std::string> parameters_;  // names by memory
  std::unordered_map<const void*, std::string> buffers_;
  std::unordered_map<const void*, Place> made_by_;
  std::set<const void*> from_data_;
  // Their memory may go, its address must not come back for another.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> storages_;
  std::string layer_;
  std::vector<Finding> findings_;
  std::vector<std::string> batch_norm_layers_;
  std::set<std::string> statistics_;
  std::map<std::string, Write> writes_;
};

}  // namespace onebatch
