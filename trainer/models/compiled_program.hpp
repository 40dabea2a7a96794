// A compiled program as it trains: loss and all gradients of a micro-batch by one call of native code.
#pragma once

#include "trainer/models/compiled_package.hpp"
#include "trainer/models/model.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace onebatch {

class CompiledProgram {
 public:
  struct Given {
    std::vector<at::Tensor> inputs;  // the program's, and the targets
    const ForwardContext& context;
    at::Tensor factor;                        // of the gradient, a scalar
    std::vector<at::Tensor> sums;             // as trained() are, that the gradients are added to where they lie
    std::function<void(std::size_t)> told;    // of each of trained(), once, as soon as nothing is added to its sum
    std::vector<std::size_t> unwritten = {};  // of overwritten(): what is in these sums is no part of them
  };
  struct Made {
    at::Tensor loss;    // the sum, a scalar, without the factor
    at::Tensor weight;  // a scalar, where the program tells it; else undefined
  };

  /// Loads the package's code, which reads and, of buffers, writes the model's own tensors: they must stay where they
  /// are, and the model must live as long. Throws UserError where it has a tensor that the model has not.
  CompiledProgram(const CompiledPackage& package, const Model& model, c10::Device device);
  ~CompiledProgram();
  CompiledProgram(const CompiledProgram&) = delete;
  CompiledProgram& operator=(const CompiledProgram&) = delete;

  /// The model's parameters that get a gradient.
  [[nodiscard]] const std::vector<at::Tensor>& trained() const;
  /// By their places, those to whose sums the code adds one matrix product each, and nothing else.
  [[nodiscard]] const std::vector<std::size_t>& overwritten() const;
  /// Its buffers that run() writes to.
  [[nodiscard]] const std::vector<NamedTensor>& changes() const;

  /// One forward and backward in training: random layers draw as they do in the program that was compiled. Where it
  /// throws, the sums are those of no batch.
  [[nodiscard]] Made run(const Given& given) const;

  /// Whether there is code that evaluates.
  [[nodiscard]] bool evaluates() const;
  /// Where there was to be some and it could not be compiled or loaded; else empty.
  [[nodiscard]] const std::string& why_it_does_not_evaluate() const;
  /// What the program returns of its inputs in evaluation: the output that its loss is taken of, or the loss's sum and
  /// weight. None where the code takes no such inputs, which the program may.
  [[nodiscard]] std::optional<std::vector<at::Tensor>> evaluate(const std::vector<at::Tensor>& inputs) const;
  void never_evaluate();

  /// True: its BatchNorms give their sums to the thread's SharingScope (trainer/batch_norm/shared_norms.hpp), and leave
  /// running statistics as they are. False: statistics are of the micro-batch alone.
  [[nodiscard]] bool shares_statistics() const;
  /// So many run() at once from here on, on threads of their own, that wait for each other in it; before they begin.
  void let_run_at_once(std::size_t number);

  /// Whether there is a variant that computes activations again in the backward instead of keeping them: of the code,
  /// or with exact BatchNorm the program itself.
  [[nodiscard]] bool may_recompute() const;
  /// Whether it is what runs: at first not.
  [[nodiscard]] bool recomputes() const;
  /// Whether that is the program, which runs instead of the code.
  [[nodiscard]] bool stands_back() const;
  void recompute(bool wished);
  /// One of the variants never runs again.
  void always_recompute();
  void never_recompute();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// A model that has native code to train by, or none.
class MayBeCompiled {
 public:
  std::unique_ptr<CompiledProgram> compiled;

  /// Throws UserError where the program takes no such inputs. Its native code does not look at what its forward decides
  /// by.
  virtual void check_inputs(const std::vector<at::Tensor>& given) const = 0;

 protected:
  MayBeCompiled() = default;
  ~MayBeCompiled() = default;
};

/// The model that trains by native code; null where it has none. Of a model that has no place for it: throws UserError
/// when it is to be set.
MayBeCompiled* compiled_of(Model& model);
/// Whether its micro-batches are native code's now.
[[nodiscard]] bool runs_native_code(Model& model);
void train_compiled(Model& model, std::unique_ptr<CompiledProgram> compiled);

}  // namespace onebatch
