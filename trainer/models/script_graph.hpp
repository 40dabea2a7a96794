// What a TorchScript module's code has written in although the run decides it: training flags, switches of arithmetic,
// devices.
//
// Note [Modes are arguments]. torch.jit.trace writes what held in that one call into the code: the training flags of
// batch_norm, dropout, attention and recurrent layers, TF32 and cuDNN's switches, the device and the type of tensors
// that the code makes. Here such constants become the run's again: flags follow the phase, convolutions read the
// process's switches, tensors are made where the model is. A script's constants are its author's and stay. With
// `frozen` every batch_norm, a trace's or a script's, keeps to its running statistics.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace onebatch {

enum class BatchNormUse { as_written, frozen };

/// One call of batch_norm in the code.
struct BatchNormCall {
  std::string layer;                    // the module whose tensors it takes, else the one that calls it: "layer1.0.bn1"
  std::vector<std::string> affine;      // full names of its weight and bias, as far as they are attributes
  std::vector<std::string> statistics;  // of its running mean and variance, and of what may count its batches
  bool of_the_batch = true;             // may use its batch's statistics in training
};

class ScriptGraph {
 public:
  /// Takes the forward's code apart in place, before its first run. Throws UserError, which begins with `file`, where a
  /// trace was made in eval mode, or a frozen BatchNorm has no running statistics.
  ScriptGraph(const torch::jit::Module& module, std::string file, BatchNormUse use);

  [[nodiscard]] const std::vector<BatchNormCall>& batch_norms() const { return batch_norms_; }
  /// What becomes of a buffer's or constant's type, which the file has, in a run of this one.
  [[nodiscard]] at::ScalarType type_in_run(at::ScalarType own, at::ScalarType run) const;
  /// What a trace makes or holds itself goes to where the model is: constants as well, in type_in_run().
  /// Numbers (tensors of no dimension) stay as they are, since they change no operator's device or type.
  void move_to(c10::Device device, at::ScalarType type);

 private:
  void note_batch_norm(torch::jit::Node* node, BatchNormUse use);
  void follow_phase(torch::jit::Node* node);
  void follow_run(torch::jit::Node* node);
  void clear_flag(torch::jit::Node* node, std::size_t index);
  void keep_own_switches(torch::jit::Node* node);
  [[noreturn]] void refuse(const std::string& what) const;

  torch::jit::Module module_;
  std::string file_;
  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<BatchNormCall> batch_norms_;
  at::ScalarType traced_type_ = at::kFloat;  // the parameters', and so what the trace calls its floating type
  torch::jit::Node* training_ = nullptr;     // the module's attribute, read
  torch::jit::Node* device_ = nullptr;       // constants of the run
  torch::jit::Node* type_ = nullptr;
  std::set<at::ScalarType> parameter_types_;
  std::map<torch::jit::Node*, at::ScalarType> constants_;  // tensors, and the types that they had
  bool drops_ = false;                                     // some operator was traced in training
};

}  // namespace onebatch
