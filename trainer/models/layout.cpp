#include "trainer/models/layout.hpp"

#include "trainer/base/error.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <map>

namespace onebatch {
namespace {

// Which elements of a storage belong to some tensor.
class Marks {
 public:
  explicit Marks(const at::Tensor& one)
      : marks_(at::zeros(
            {static_cast<std::int64_t>(one.storage().nbytes()) / static_cast<std::int64_t>(one.element_size()) + 1},
            at::TensorOptions().dtype(at::kByte))) {}

  bool add(const at::Tensor& tensor) {
    const at::Tensor its = marks_.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (its.any().item<bool>()) return false;
    its.fill_(1);
    return true;
  }
  [[nodiscard]] std::int64_t count() const { return marks_.sum().item<std::int64_t>(); }

 private:
  at::Tensor marks_;
};

bool has_gaps(const at::Tensor& tensor) {
  return !tensor.is_non_overlapping_and_dense();
}

void refuse_expanded(const NamedTensor& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  Marks marks(tensor);
  marks.add(tensor);
  if (marks.count() == tensor.numel()) return;
  throw UserError("the parameter " + parameter.name +
                  " is expanded: several of its elements are one number in memory, which no optimizer can update: "
                  "write torch.nn.Parameter(tensor.expand(...).clone()), or expand it in forward");
}

bool may_overlap(const at::Tensor& one, const at::Tensor& other) {
  const auto last = [](const at::Tensor& tensor) {
    std::int64_t element = tensor.storage_offset();
    for (std::int64_t d = 0; d < tensor.dim(); ++d) element += (tensor.size(d) - 1) * tensor.stride(d);
    return element;
  };
  if (one.scalar_type() != other.scalar_type()) return true;
  return one.storage_offset() <= last(other) && other.storage_offset() <= last(one);
}

// Of one type.
bool have_common_elements(const at::Tensor& one, const at::Tensor& other) {
  Marks marks(one);
  marks.add(one);
  return !marks.add(other);
}

// Of tensors in one storage.
void refuse_shared_memory(const std::vector<NamedTensor>& together) {
  for (std::size_t i = 0; i < together.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const auto& [one, first] = together[j];
      const auto& [other, second] = together[i];
      if (!(first.requires_grad() || second.requires_grad()) || !may_overlap(first, second)) continue;
      if (first.scalar_type() == second.scalar_type() && !have_common_elements(first, second)) continue;
      throw UserError(one + " and " + other +
                      " share memory without being one parameter, so training one of them changes the other: write "
                      ".clone() for one, or the same torch.nn.Parameter for both");
    }
  }
}

bool in_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && tensor.numel() > 0;
}

}  // namespace

void give_dense_memory(const Model& model) {
  const at::NoGradGuard no_grad;
  std::map<const void*, std::vector<NamedTensor>> by_storage;
  for (const auto& tensors : {model.parameters(), model.buffers()}) {
    for (const NamedTensor& one : tensors) {
      if (!in_memory(one.tensor)) continue;
      by_storage[one.tensor.storage().unsafeGetStorageImpl()].push_back(one);
      if (one.tensor.requires_grad() && has_gaps(one.tensor)) refuse_expanded(one);
    }
  }
  for (const auto& [storage, together] : by_storage) refuse_shared_memory(together);
  for (const NamedTensor& parameter : model.parameters()) {
    const at::Tensor& tensor = parameter.tensor;
    if (!tensor.requires_grad() || !has_gaps(tensor)) continue;
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    at::Tensor(tensor).set_data(tensor.detach().clone(at::MemoryFormat::Contiguous));
  }
}

void put_in_channels_last(const Model& model) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& parameter : model.parameters()) {
    const at::Tensor& tensor = parameter.tensor;
    const at::Tensor placed = images_in_channels_last(tensor.detach());
    if (placed.strides() == tensor.strides()) continue;
    tensor.unsafeGetTensorImpl()->set_allow_tensor_metadata_change(true);
    at::Tensor(tensor).set_data(placed);
  }
}

// By .to, not .contiguous: of one channel both orders are one, and strides alone tell kernels which is meant.
at::Tensor images_in_channels_last(const at::Tensor& input) {
  if (input.dim() != 4 || !input.is_floating_point()) return input;
  return input.to(input.scalar_type(), /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::ChannelsLast);
}

at::Tensor in_memory_order(const at::Tensor& tensor) {
  return tensor.as_strided({tensor.numel()}, {1});
}

at::Tensor with_strides_of(const at::Tensor& like, const at::Tensor& tensor) {
  if (same_order(like, tensor)) return tensor;
  return at::empty_strided(like.sizes(), like.strides(), tensor.options().requires_grad(false)).copy_(tensor);
}

bool same_order(const at::Tensor& one, const at::Tensor& other) {
  for (std::int64_t d = 0; d < one.dim(); ++d) {
    if (one.size(d) > 1 && one.stride(d) != other.stride(d))
      return false;  // a dimension of one element has no stride to speak of
  }
  return true;
}

}  // namespace onebatch
