#include "trainer/batch_norm/running_statistics.hpp"

#include "trainer/io/named_tensors.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

namespace onebatch {
namespace {

void all_reduce_host(const at::Tensor& tensor, comm::ScalarType type, comm::ReduceOp op, comm::Communicator& control) {
  control.all_reduce(tensor.mutable_data_ptr(), static_cast<std::size_t>(tensor.numel()), type, op);
}

at::Tensor average(const at::Tensor& buffer, double share, comm::Communicator& control) {
  const at::Tensor own = buffer.detach().cpu().to(at::kDouble);
  // Not 0 times what is there: a rank without samples may have anything, and 0 times infinity is NaN.
  const at::Tensor sum = (share == 0.0 ? at::zeros_like(own) : own.mul(share)).contiguous();
  all_reduce_host(sum, comm::ScalarType::float64, comm::ReduceOp::sum, control);
  return sum.to(buffer.scalar_type());
}

at::Tensor largest(const at::Tensor& buffer, comm::Communicator& control) {
  const at::Tensor max = buffer.detach().cpu().to(at::kLong, /*non_blocking=*/false, /*copy=*/true).contiguous();
  all_reduce_host(max, comm::ScalarType::int64, comm::ReduceOp::max, control);
  return max.to(buffer.scalar_type());
}

}  // namespace

std::vector<NamedTensor> average_statistics(const std::vector<NamedTensor>& statistics, double weight,
                                            comm::Communicator& control) {
  double total = weight;
  control.all_reduce(&total, 1, comm::ScalarType::float64, comm::ReduceOp::sum);
  const double share = total > 0.0 ? weight / total : (control.rank() == 0 ? 1.0 : 0.0);
  std::vector<NamedTensor> averaged;
  for (const auto& [name, tensor] : statistics) {
    averaged.push_back({name, tensor.is_floating_point() ? average(tensor, share, control) : largest(tensor, control)});
  }
  return averaged;
}

AveragedStatistics::AveragedStatistics(const std::vector<NamedTensor>& own_statistics, double weight,
                                       comm::Communicator& control)
    : live_(own_statistics) {
  const at::NoGradGuard no_grad;
  if (control.size() == 1 || live_.empty()) return;
  own_ = copies_of(live_);
  const auto averaged = average_statistics(live_, weight, control);
  for (std::size_t i = 0; i < live_.size(); ++i) live_[i].tensor.copy_(averaged[i].tensor);
}

AveragedStatistics::~AveragedStatistics() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < own_.size(); ++i) live_[i].tensor.copy_(own_[i].tensor);
}

}  // namespace onebatch
