#include "trainer/gradients/reducer.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
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

namespace {

bool overlaps(const Bucket& a, const Bucket& b) {
  return a.begin < b.begin + b.count && b.begin < a.begin + a.count;
}

}  // namespace

GradientReducer::GradientReducer(comm::Communicator& communicator, comm::CollectiveQueue& queue,
                                 FlatGradients& gradients, ComputeDevice& device, const ReducerOptions& options)
    : communicator_(communicator),
      queue_(queue),
      gradients_(gradients),
      device_(device),
      timeline_(options.timeline),
      through_host_(!gradients.summed().is_cpu() && communicator.backend() != "nccl"),
      overlap_(options.overlap && queue.in_background() && communicator.size() > 1 && !through_host_ &&
               gradients.summed().numel() == gradients.flat().numel()) {
  const at::Tensor& flat = gradients.summed();
  const at::ScalarType type = options.wire_type;
  if (communicator.size() > 1 && (through_host_ || type != flat.scalar_type())) {
    const auto bytes = static_cast<std::size_t>(flat.numel()) * c10::elementSize(type);
    if (through_host_) {
      wire_ = at::empty(flat.sizes(), at::TensorOptions().dtype(type).pinned_memory(true));
    } else if (flat.is_cpu()) {
      wire_ = at::from_blob(communicator.allocate(bytes), flat.sizes(), at::TensorOptions().dtype(type));
    } else {
      wire_ = at::empty(flat.sizes(), flat.options().dtype(type));
    }
  }
  buckets_ = make_buckets(flat.numel(), static_cast<std::int64_t>(wire().element_size()), options.bucket_cap_bytes);
  std::reverse(buckets_.begin(), buckets_.end());
  for (const Bucket& bucket : buckets_) {
    const auto in_it = [&](const Bucket& extent) { return overlaps(extent, bucket); };
    num_parameters_.push_back(std::count_if(gradients.extents().begin(), gradients.extents().end(), in_it));
  }
  final_.resize(gradients.parameters().size());
  if (overlap_) gradients_.set_listener([this](std::size_t index) { parameter_is_final(index); });
}

GradientReducer::~GradientReducer() {
  gradients_.set_listener(nullptr);
}

void GradientReducer::begin_last_backward() {
  if (!overlap_) return;
  std::fill(final_.begin(), final_.end(), false);
  pending_ = num_parameters_;
  listening_ = true;
}

void GradientReducer::parameter_is_final(std::size_t index) {
  if (!listening_ || final_[index]) return;
  final_[index] = true;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    pending_[b] -= overlaps(gradients_.extents()[index], buckets_[b]) ? 1 : 0;
  while (next_ < buckets_.size() && pending_[next_] == 0) send_next();
}

void GradientReducer::send_next() {
  if (next_ == 0) reduced_bytes_ = 0;
  const Bucket& bucket = buckets_[next_++];
  const at::Tensor& travels = wire();
  if (wire_.defined() && !through_host_)
    wire_.narrow(0, bucket.begin, bucket.count).copy_(gradients_.summed().narrow(0, bucket.begin, bucket.count));
  auto* data = static_cast<std::byte*>(travels.mutable_data_ptr()) +
               bucket.begin * static_cast<std::int64_t>(travels.element_size());
  const int ready = communicator_.mark_ready(device_.current_stream());
  reduced_bytes_ += bucket.count * static_cast<std::int64_t>(travels.element_size());
  queue_.post(
      [this, data, count = static_cast<std::size_t>(bucket.count), type = comm_type(travels.scalar_type()), ready] {
        const Span span(timeline_, "bucket", "reduce");
        communicator_.start_all_reduce(data, count, type, comm::ReduceOp::sum, ready);
      });
}

void GradientReducer::finish() {
  listening_ = false;
  gradients_.complete_sum();
  if (communicator_.size() == 1) return;
  if (through_host_) wire_.copy_(gradients_.summed());
  while (next_ < buckets_.size()) send_next();
  next_ = 0;
  queue_.post([this, stream = device_.current_stream()] { communicator_.finish_on(stream); });
  queue_.wait();
  if (wire_.defined()) gradients_.summed().copy_(wire_);
}

}  // namespace onebatch
