#include "trainer/gradients/reducer.hpp"

#include <ATen/ops/empty.h>

#include <stdexcept>

namespace onebatch {

comm::ScalarType comm_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return comm::ScalarType::float32;
    case at::kDouble: return comm::ScalarType::float64;
    case at::kHalf: return comm::ScalarType::float16;
    case at::kBFloat16: return comm::ScalarType::bfloat16;
    case at::kLong: return comm::ScalarType::int64;
    case at::kInt: return comm::ScalarType::int32;
    case at::kByte: return comm::ScalarType::uint8;
    default: throw std::invalid_argument(std::string("no collective for elements of type ") + c10::toString(type));
  }
}

GradientReducer::GradientReducer(comm::Communicator& communicator, std::int64_t bucket_cap_bytes)
    : communicator_(communicator), bucket_cap_bytes_(bucket_cap_bytes) {}

void GradientReducer::all_reduce(const at::Tensor& flat) {
  if (communicator_.size() == 1) return;
  const bool through_host = !flat.is_cpu() && communicator_.backend() != "nccl";
  const at::Tensor buffer = through_host ? flat.cpu() : flat;
  const auto element_bytes = static_cast<std::int64_t>(buffer.element_size());
  auto* bytes = static_cast<std::byte*>(buffer.mutable_data_ptr());
  for (const Bucket& bucket : make_buckets(buffer.numel(), element_bytes, bucket_cap_bytes_)) {
    communicator_.all_reduce(bytes + bucket.begin * element_bytes, static_cast<std::size_t>(bucket.count), comm_type(buffer.scalar_type()),
                             comm::ReduceOp::sum);
  }
  if (through_host) flat.copy_(buffer);
}

}  // namespace onebatch
