// BatchNorms of native code whose statistics are of more than its micro-batch: who exchanges their sums while it runs.
#pragma once

#include "trainer/batch_norm/statistics.hpp"

#include <cstddef>

namespace onebatch {

/// Native code gives it the sums of its own micro-batch, and gets those of all that share them: of each BatchNorm of
/// the forward in their order, then of those of the backward in the opposite one.
class NormSharer {
 public:
  NormSharer() = default;
  NormSharer(const NormSharer&) = delete;
  NormSharer& operator=(const NormSharer&) = delete;
  virtual ~NormSharer() = default;

  /// What normalises the layer's inputs; `options`: the type and device of its parts. It stays as it is until the
  /// layer's backward is done.
  virtual const Normaliser& share(std::size_t layer, const Moments& mine, double eps,
                                  const at::TensorOptions& options) = 0;
  [[nodiscard]] virtual const Normaliser& normaliser(std::size_t layer) const = 0;
  virtual OutputSums share(std::size_t layer, const OutputSums& mine) = 0;
};

/// To whom this thread's native code gives its sums while this lives; else each micro-batch is alone.
class SharingScope {
 public:
  explicit SharingScope(NormSharer& sharer);
  ~SharingScope();
  SharingScope(const SharingScope&) = delete;
  SharingScope& operator=(const SharingScope&) = delete;

 private:
  NormSharer* before_;
};

}  // namespace onebatch
