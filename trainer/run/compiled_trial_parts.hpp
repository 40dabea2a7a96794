// What a comparison and a timing of native code both need.
#pragma once

#include "trainer/models/compiled_program.hpp"
#include "trainer/replica/replica.hpp"

#include <ATen/core/grad_mode.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace onebatch {

inline constexpr std::int64_t k_samples = 3;  // of a comparison
/// What native code may be off, of what the program's own error is; in float64 of what another order of the samples
/// makes.
inline constexpr double k_times_the_own = 2.0;
inline constexpr double k_times_an_order = 8.0;
/// What is no difference, whatever the own error: so many roundings, and in float64 so much.
inline constexpr double k_roundings = 16.0;
inline constexpr double k_in_float64 = 1e-12;

/// Weights and buffers, which are afterwards as they were, and no gradient is left. They lie on the host meanwhile.
class KeptWeights {
 public:
  explicit KeptWeights(Replica& replica);
  ~KeptWeights();
  KeptWeights(const KeptWeights&) = delete;
  KeptWeights& operator=(const KeptWeights&) = delete;

  void restore() const;

 private:
  Replica& replica_;
  std::vector<NamedTensor> tensors_;
  std::vector<at::Tensor> before_;
  int exceptions_ = std::uncaught_exceptions();
};

/// Moves parameters and running statistics a little: to other numbers than those that the program was compiled with, of
/// which code may hold a copy.
void nudge(Replica& replica);

/// A model has no native code while this lives.
class Uncompiled {
 public:
  explicit Uncompiled(MayBeCompiled& owner) : owner_(owner), code_(std::exchange(owner.compiled, nullptr)) {}
  ~Uncompiled() { owner_.compiled = std::move(code_); }
  Uncompiled(const Uncompiled&) = delete;
  Uncompiled& operator=(const Uncompiled&) = delete;

 private:
  MayBeCompiled& owner_;
  std::unique_ptr<CompiledProgram> code_;
};

/// A model evaluates while this lives, and afterwards trains.
class InEvaluation {
 public:
  explicit InEvaluation(Model& model) : model_(model) { model_.set_phase(Phase::evaluation); }
  ~InEvaluation() { model_.set_phase(Phase::training); }
  InEvaluation(const InEvaluation&) = delete;
  InEvaluation& operator=(const InEvaluation&) = delete;

 private:
  Model& model_;
  at::NoGradGuard no_grad_;
};

/// `work` with a replica of the same program with the same numbers, on the host.
void on_host(const Configuration& configuration, const Dataset& data, const Replica& replica,
             const std::function<void(Replica&)>& work);

std::vector<std::int64_t> first_samples(std::int64_t count, const Dataset& data);

/// As the first epoch changes them.
Batch batch_of(const Replica& replica, const Dataset& data, const std::vector<std::int64_t>& samples);

}  // namespace onebatch
