#include "trainer/device/matrix_products.hpp"

#include "trainer/device/inside_table.hpp"
#include "trainer/device/native_failure.hpp"
#include "trainer/device/row_sums.hpp"

#include <ATen/CPUFunctions.h>
#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>
#include <torch/library.h>

#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

namespace at::native {
// oneDNN's: result = beta * result + alpha * left * right. LibTorch exports it, and has no header of it.
void mkldnn_matmul(const Tensor& left, const Tensor& right, const Tensor& result, float beta, float alpha);
}  // namespace at::native

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

bool is_used = false;  // set once, at the start

thread_local UnwrittenSums* unwritten = nullptr;

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

bool is_quicker_into(const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  return is_used && is_large_product(left, right) && out.scalar_type() == at::kFloat && out.is_contiguous() &&
         out.sizes() == at::IntArrayRef{left.size(0), right.size(1)};
}

// What is added to every row of a product with so many columns; none where each row gets another.
std::optional<at::Tensor> added_row(const at::Tensor& added, std::int64_t columns) {
  if (added.scalar_type() != at::kFloat || added.dim() == 0 || added.size(-1) != columns) return std::nullopt;
  if (added.dim() == 1) return added;
  return added.dim() == 2 && added.stride(0) == 0 ? std::optional(added[0]) : std::nullopt;
}

using torch::aot_inductor::resolve_tensor_dispatch_flags;

bool mm_of_compiled(AtenTensorHandle out, AtenTensorHandle left, AtenTensorHandle right) {
  const at::Tensor to = resolve_tensor_dispatch_flags(out), a = resolve_tensor_dispatch_flags(left),
                   b = resolve_tensor_dispatch_flags(right);
  if (!is_quicker_into(to, a, b)) return false;
  at::native::mkldnn_matmul(a, b, to, 0.0F, 1.0F);
  return true;
}

// The operator of accumulating.py.
void add_product(const at::Tensor& summed, const at::Tensor& left, const at::Tensor& right) {
  NativeFailure::told([&] {
    const double kept = UnwrittenSums::take(summed) ? 0.0 : 1.0;  // 0: what is there is not read
    if (summed.is_cpu() && is_quicker_into(summed, left, right)) {
      at::native::mkldnn_matmul(left, right, summed, static_cast<float>(kept), 1.0F);
    } else {
      at::Tensor result = summed;
      at::addmm_out(result, summed, left, right, kept);
    }
  });
}

void add_rows_told(const at::Tensor& summed, const at::Tensor& rows, const at::Tensor& values) {
  NativeFailure::told([&] { add_rows(summed, rows, values); });
}

bool addmm_of_compiled(AtenTensorHandle out, AtenTensorHandle added, AtenTensorHandle left, AtenTensorHandle right) {
  const at::Tensor to = resolve_tensor_dispatch_flags(out), a = resolve_tensor_dispatch_flags(left),
                   b = resolve_tensor_dispatch_flags(right);
  if (!is_quicker_into(to, a, b)) return false;
  const auto row = added_row(resolve_tensor_dispatch_flags(added), b.size(1));
  if (row) to.copy_(by_onednn(a, b, row));
  return row.has_value();
}

// LibTorch's own function of a name that this file takes.
template <typename Function>
Function* of_libtorch(const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
  TORCH_CHECK(found != nullptr, "LibTorch has no ", name);
  return found;
}

// As native code is answered, which knows no exceptions.
template <typename Work>
AOTITorchError answer_of(Work work) {
  try {
    return work();
  } catch (const std::exception& error) {
    LOG(ERROR) << "a matrix product: " << error.what();
    return AOTI_TORCH_FAILURE;
  }
}

using Mm = AOTITorchError(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle);
using Addmm = AOTITorchError(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle, AtenTensorHandle, double, double);

}  // namespace

UnwrittenSums::UnwrittenSums(std::unordered_set<const void*> sums)
    : sums_(std::move(sums)), before_(std::exchange(unwritten, this)) {}

UnwrittenSums::~UnwrittenSums() {
  unwritten = before_;
}

bool UnwrittenSums::take(const at::Tensor& sum) {
  return unwritten != nullptr && unwritten->sums_.erase(sum.const_data_ptr()) > 0;
}

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
  is_used = true;
}

}  // namespace onebatch

// Of accumulating.py: a gradient goes into its sum without a pass of its own.
TORCH_LIBRARY_FRAGMENT(onebatch, library) {
  library.def("add_product(Tensor(a!) summed, Tensor one, Tensor other) -> ()");
  library.def("add_rows(Tensor(a!) summed, Tensor rows, Tensor values) -> ()");
  library.def("inside(Tensor indices, int least, int end) -> Tensor");  // of indices.py
}

TORCH_LIBRARY_IMPL(onebatch, CompositeExplicitAutograd, library) {
  library.impl("add_product", &onebatch::add_product);
}

TORCH_LIBRARY_IMPL(onebatch, CPU, library) {
  library.impl("add_rows", &onebatch::add_rows_told);
  library.impl("inside", &onebatch::inside_table);
}

// Native code of the compiler has its products under these names, which it finds in the program before LibTorch's.

AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat2) {
  return onebatch::answer_of([&] {
    static auto* const own = onebatch::of_libtorch<onebatch::Mm>("aoti_torch_cpu_mm_out");
    return onebatch::mm_of_compiled(out, self, mat2) ? AOTI_TORCH_SUCCESS : own(out, self, mat2);
  });
}

AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle out, AtenTensorHandle self, AtenTensorHandle mat1,
                                        AtenTensorHandle mat2, double beta, double alpha) {
  return onebatch::answer_of([&] {
    static auto* const own = onebatch::of_libtorch<onebatch::Addmm>("aoti_torch_cpu_addmm_out");
    const bool is_plain = beta == 1.0 && alpha == 1.0;
    return is_plain && onebatch::addmm_of_compiled(out, self, mat1, mat2) ? AOTI_TORCH_SUCCESS
                                                                          : own(out, self, mat1, mat2, beta, alpha);
  });
}
