#include "trainer/batch_norm/shared_norms.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace onebatch {
namespace {

class Alone : public NormSharer {
 public:
  const Normaliser& share(std::size_t layer, const Moments& mine, double eps,
                          const at::TensorOptions& options) override {
    return normalisers_[layer] = make_normaliser(mine, eps, options);
  }
  [[nodiscard]] const Normaliser& normaliser(std::size_t layer) const override { return normalisers_.at(layer); }
  OutputSums share(std::size_t, const OutputSums& mine) override { return mine; }

 private:
  std::map<std::size_t, Normaliser> normalisers_;
};

thread_local NormSharer* current_sharer = nullptr;

NormSharer& sharer() {
  thread_local Alone alone;
  return current_sharer != nullptr ? *current_sharer : alone;
}

// As the operators of shared_norms.py, which says what they return. `after` is there for their order.

at::Tensor shared_moments(const at::Tensor& inputs, const std::optional<at::Tensor>& /*after*/, std::int64_t layer,
                          double eps) {
  const at::NoGradGuard no_grad;
  const at::ScalarType type = inputs.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const Normaliser& by =
      sharer().share(static_cast<std::size_t>(layer), moments_of(inputs), eps, inputs.options().dtype(type));
  return at::stack({by.rounded_mean, by.invstd.to(type), by.rounded_left, by.rounded_variance});
}

std::tuple<at::Tensor, at::Tensor> shared_sums(const at::Tensor& gradient, const at::Tensor& inputs,
                                               const at::Tensor& by, const std::optional<at::Tensor>& /*after*/,
                                               std::int64_t layer, double /*eps*/) {
  const at::NoGradGuard no_grad;
  const auto index = static_cast<std::size_t>(layer);
  const Normaliser& exact = sharer().normaliser(index);
  const OutputSums mine = output_sums(gradient, inputs, exact);
  const OutputSums total = sharer().share(index, mine);
  const at::Tensor& times = total.gradient_times_normalised;
  return {at::stack({mine.gradient, mine.gradient_times_normalised}).to(by.scalar_type()),
          at::stack({times, total.gradient.sub(times.mul(exact.left))}).div_(-exact.count).to(by.scalar_type())};
}

}  // namespace

SharingScope::SharingScope(NormSharer& sharer) : before_(std::exchange(current_sharer, &sharer)) {}

SharingScope::~SharingScope() {
  current_sharer = before_;
}

}  // namespace onebatch

TORCH_LIBRARY_FRAGMENT(onebatch, library) {
  library.def("shared_moments(Tensor inputs, Tensor? after, int layer, float eps) -> Tensor");
  library.def(
      "shared_sums(Tensor gradient, Tensor inputs, Tensor by, Tensor? after, int layer, float eps) -> (Tensor, "
      "Tensor)");
}

TORCH_LIBRARY_IMPL(onebatch, CompositeExplicitAutograd, library) {
  library.impl("shared_moments", &onebatch::shared_moments);
  library.impl("shared_sums", &onebatch::shared_sums);
}
