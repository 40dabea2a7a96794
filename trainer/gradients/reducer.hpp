// Sums the flat gradient over all ranks: once per optimizer step, in one fixed order, during the last backward where
// that is asked for. See Note [Gradient communication does not depend on accumulation].
#pragma once

#include "comm/collective_queue.hpp"
#include "trainer/device/compute_device.hpp"
#include "trainer/events/timeline.hpp"
#include "trainer/gradients/flat_gradients.hpp"

namespace onebatch {

struct ReducerOptions {
  std::int64_t bucket_cap_bytes = 25 << 20;
  bool overlap = false;  // reduce during the last backward
  // What travels; the gradient's own type, or a narrower one that it is rounded to.
  at::ScalarType wire_type = at::kFloat;
  Timeline* timeline = nullptr;
};

class GradientReducer {
 public:
  /// `communicator` works on the memory in which the gradient lives, or on host memory: then the gradient is carried
  /// through it. Posts to `queue`. Allocates what it needs at once, so that a probe counts it. Collective.
  GradientReducer(comm::Communicator& communicator, comm::CollectiveQueue& queue, FlatGradients& gradients,
                  ComputeDevice& device, const ReducerOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// To be called before the backward of a step's last micro-batch: with overlap a bucket is sent as soon as the
  /// parameters in it, and those of the buckets before it, are final. Parameters which that backward does not reach are
  /// sent by finish().
  void begin_last_backward();
  /// The same of one parameter, for backwards that go segment by segment: nothing will be added to its gradient.
  void parameter_is_final(std::size_t index);
  /// Whether it is to be told of parameters that are final, to send them while the rest is computed.
  [[nodiscard]] bool hears_of_parameters() const { return overlap_; }
  /// Whether buckets have a communicator of their own: else ranks that send one at another place among the step's
  /// exchanges would meet in unlike operations.
  [[nodiscard]] bool sends_beside_exchanges() const { return communicator_.backend() == "nccl"; }
  /// Sends what has not been sent, in the same order on every rank, and waits. Afterwards every rank's gradient holds
  /// the same sum, bit for bit. Collective.
  void finish();

  /// Bytes of gradient handed to the communicator in the last reduction.
  [[nodiscard]] std::int64_t reduced_bytes() const { return reduced_bytes_; }

 private:
  void send_next();
  [[nodiscard]] const at::Tensor& wire() const { return wire_.defined() ? wire_ : gradients_.summed(); }

  comm::Communicator& communicator_;
  comm::CollectiveQueue& queue_;
  FlatGradients& gradients_;
  ComputeDevice& device_;
  Timeline* timeline_;
  bool through_host_;
  bool overlap_;
  bool listening_ = false;                    // during a step's last backward
  at::Tensor wire_;                           // where another type or another memory than the gradient's travels
  std::vector<Bucket> buckets_;               // in the order in which they are sent: from the end, as backwards arrive
  std::vector<std::int64_t> num_parameters_;  // of each bucket, whole or in part
  std::vector<std::int64_t> pending_;         // parameters of each bucket that are not final
  std::vector<bool> final_;                   // per parameter
  std::size_t next_ = 0;                      // bucket to send
  std::int64_t reduced_bytes_ = 0;
};

/// The communication layer's word for an element type. Throws std::invalid_argument for one that it has no word for.
comm::ScalarType comm_type(at::ScalarType type);

}  // namespace onebatch
