#include "trainer/run/not_finite.hpp"

#include "comm/world.hpp"
#include "trainer/graph/watched_calls.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/step/accumulation.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/isinf.h>
#include <ATen/ops/isnan.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <unordered_map>

namespace onebatch {
namespace {

// By the least and the largest, since a tensor of flags may be what a full device has no room for; a NaN is both. In
// the order in which the numbers lie, else LibTorch makes a copy.
bool all_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0) return true;
  const at::NoGradGuard no_grad;
  const auto [least, largest] =
      at::aminmax(tensor.is_non_overlapping_and_dense() ? tensor.as_strided({tensor.numel()}, {1}) : tensor);
  return std::isfinite(least.item<double>()) && std::isfinite(largest.item<double>());
}

// Watches a forward's calls as capture() does.
class Watch {
 public:
  explicit Watch(const Model& model) {
    for (const auto& tensors : {model.parameters(), model.buffers()}) {
      for (const auto& [name, tensor] : tensors)
        names_.emplace(tensor.unsafeGetTensorImpl(), name.substr(0, name.rfind('.')));
    }
  }

  void call(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    if (!found_.empty()) return op.callBoxed(stack);
    // Infinity may be meant: what fills with it, as a mask does, and what takes that.
    static const std::set<std::string> fillers = {"aten::full",        "aten::full_like",    "aten::fill_",
                                                  "aten::masked_fill", "aten::masked_fill_", "aten::where",
                                                  "aten::empty",       "aten::empty_like",   "aten::scalar_tensor"};
    bool meant = fillers.contains(op.operator_name().name);
    for_each_tensor(torch::jit::last(*stack, op.schema().arguments().size()), [&](const at::Tensor& tensor) {
      if (const auto name = names_.find(tensor.unsafeGetTensorImpl()); name != names_.end()) last_name_ = name->second;
      meant |= infinite_.contains(tensor.unsafeGetTensorImpl());
    });
    op.callBoxed(stack);
    for_each_tensor(torch::jit::last(*stack, op.schema().returns().size()), [&](const at::Tensor& tensor) {
      if (!found_.empty() || all_finite(tensor)) return;
      if (meant && !tensor.isnan().any().item<bool>())
        infinite_.emplace(tensor.unsafeGetTensorImpl(), tensor);
      else
        found_ = op.operator_name().name + (last_name_.empty() ? " at the model's beginning" : ", after " + last_name_);
    });
  }

  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
  std::unordered_map<const c10::TensorImpl*, at::Tensor> infinite_;  // held, so that no other takes its address
  std::string last_name_;
  std::string found_;
};

std::string in_forward(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples,
                       std::int64_t step) {
  const at::NoGradGuard no_grad;
  const SavedTensors before(replica.model->buffers());
  const Batch batch = replica.load(data, samples).batch;
  Watch one(*replica.model);
  watch_calls([&](const c10::OperatorHandle& op, torch::jit::Stack* stack) { one.call(op, stack); },
              [&] {
                replica.forward(batch, {replica.seed, step, samples});
              });
  before.restore();
  return one.found();
}

// The first sample for which the flags [N, ...] are set in some place.
std::optional<std::size_t> first_flagged(const at::Tensor& flags) {
  const at::Tensor of_sample = flags.reshape({flags.size(0), -1}).any(1).cpu();
  for (std::int64_t i = 0; i < of_sample.size(0); ++i) {
    if (of_sample[i].item<bool>()) return static_cast<std::size_t>(i);
  }
  return std::nullopt;
}

enum class Sought { nan, infinity };

// In what the model and its loss are given. An infinity may be meant, as in a mask; a NaN makes others of all that it
// meets.
std::string in_data(const Replica& replica, const Dataset& data, std::span<const std::int64_t> samples, Sought sought) {
  const auto given = replica.load(data, samples).batch.tensors();
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].is_floating_point()) continue;
    const auto flagged = first_flagged(sought == Sought::nan ? given[i].isnan() : given[i].isinf());
    if (!flagged) continue;
    const std::string holds = fmt::format("sample {} of {} holds ", data.origin_of(samples[*flagged]), data.name_of(i));
    if (sought == Sought::nan) return holds + "NaN";
    const bool infinite = !all_finite(data.gather(samples.subspan(*flagged, 1), at::kDouble).tensors()[i]);
    return holds + (infinite ? "an infinity"
                             : std::string("a number that is too large for ") + c10::toString(given[i].scalar_type()));
  }
  return {};
}

std::string on_this_rank(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples,
                         const std::vector<MicroBatchRun>& micro_batches, std::int64_t step) {
  for (const auto& [name, tensor] : replica.model->parameters()) {
    if (!all_finite(tensor)) return "the parameter " + name + " is not finite already";
  }
  for (const auto part : micro_batches_of(samples, micro_batches)) {
    if (part.empty()) continue;
    const std::string missing = in_data(replica, data, part, Sought::nan);
    if (!missing.empty()) return missing;
    const std::string found = in_forward(replica, data, part, step);
    if (found.empty()) continue;
    const std::string infinite = in_data(replica, data, part, Sought::infinity);
    return "the first is made by " + found + (infinite.empty() ? "" : "; " + infinite);
  }
  return {};
}

}  // namespace

std::string first_not_finite(Replica& replica, const Dataset& data, std::span<const std::int64_t> samples,
                             const std::vector<MicroBatchRun>& micro_batches, std::int64_t step,
                             comm::Communicator& control) {
  std::string mine;
  // Whatever goes wrong in looking for it: what is known is said.
  try {
    mine = on_this_rank(replica, data, samples, micro_batches, step);
  } catch (const std::exception& error) {
    mine = std::string("its forward fails: ") + error.what();
  }
  const auto all = comm::all_gather_text(control, mine);
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) return all[rank] + (all.size() > 1 ? fmt::format(" on rank {}", rank) : "");
  }
  // Backwards come to the last parameters first.
  const auto& views = replica.gradients.views();
  for (std::size_t i = views.size(); i-- > 0;) {
    if (!all_finite(views[i]))
      return "every forward is finite; the first to go wrong in the backward is the gradient of " +
             replica.gradients.parameters()[i].name;
  }
  return "its sum over the ranks alone is not finite";
}

namespace {

bool on_all_ranks(bool mine, comm::Communicator& control) {
  std::int64_t all = mine ? 1 : 0;
  control.all_reduce(&all, 1, comm::ScalarType::int64, comm::ReduceOp::min);
  return all != 0;
}

// What is not trained may hold an infinity that is meant, as a mask does.
bool has_finite_parameters(const Replica& replica) {
  return std::ranges::all_of(replica.gradients.parameters(),
                             [](const NamedTensor& parameter) { return all_finite(parameter.tensor); });
}

}  // namespace

bool has_finite_weights(const Replica& replica, comm::Communicator& control) {
  const auto& statistics = replica.running_statistics;
  bool finite = has_finite_parameters(replica);
  for (const auto& [name, tensor] : replica.model->buffers()) {
    if (std::ranges::find(statistics, name) != statistics.end()) finite = finite && all_finite(tensor);
  }
  return on_all_ranks(finite, control);
}

bool trains_on_numbers(const Replica& replica, comm::Communicator& control) {
  return on_all_ranks(has_finite_parameters(replica), control);
}

}  // namespace onebatch
