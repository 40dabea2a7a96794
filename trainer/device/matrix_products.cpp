#include "trainer/device/matrix_products.hpp"

#include <ATen/CPUFunctions.h>
#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <string_view>

namespace onebatch {
namespace {

constexpr std::int64_t k_least_multiplications = std::int64_t{1} << 20;

using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, c10::List<std::optional<at::Scalar>>,
                                   std::optional<std::string_view>);

// oneDNN's linear layer, as Inductor calls it: its weight is [n, k], of any strides.
at::Tensor by_onednn(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias) {
  static const auto linear =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "").typed<LinearPointwise>();
  return linear.call(left, right.t(), bias, "none", c10::List<std::optional<at::Scalar>>(), "");
}

at::Tensor mm(const at::Tensor& left, const at::Tensor& right) {
  return is_large_product(left, right) ? by_onednn(left, right, std::nullopt) : at::cpu::mm(left, right);
}

at::Tensor addmm(const at::Tensor& added, const at::Tensor& left, const at::Tensor& right, const at::Scalar& beta,
                 const at::Scalar& alpha) {
  const bool is_layer = beta.equal(1) && alpha.equal(1) && added.dim() == 1 && added.scalar_type() == at::kFloat &&
                        right.dim() == 2 && added.size(0) == right.size(1);
  return is_layer && is_large_product(left, right) ? by_onednn(left, right, added)
                                                   : at::cpu::addmm(added, left, right, beta, alpha);
}

// LibTorch warns of every kernel that takes another's place.
class Unwarned : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

std::unique_ptr<torch::Library> register_products() {
  Unwarned unwarned;
  const c10::WarningUtils::WarningHandlerGuard guard(&unwarned);
  auto library =
      std::make_unique<torch::Library>(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
  library->impl("mm", &mm);
  library->impl("addmm", &addmm);
  return library;
}

}  // namespace

bool mkl_leaves_vectors_idle() {
#ifdef __x86_64__
  return at::hasMKL() && __builtin_cpu_is("intel") == 0 && at::get_cpu_capability() == "AVX512";
#else
  return false;
#endif
}

bool is_large_product(const at::Tensor& left, const at::Tensor& right) {
  const auto fits = [](const at::Tensor& x) { return x.dim() == 2 && x.scalar_type() == at::kFloat; };
  if (!fits(left) || !fits(right) || left.size(1) != right.size(0)) return false;
  return left.size(0) * left.size(1) * right.size(1) >= k_least_multiplications;
}

void use_quickest_matrix_products() {
  if (!mkl_leaves_vectors_idle() || !at::globalContext().userEnabledMkldnn()) return;
  static const std::unique_ptr<torch::Library> library = register_products();
}

}  // namespace onebatch
