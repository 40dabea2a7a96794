#include "trainer/replica/output_check.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/named_tensors.hpp"
#include "trainer/replica/unfit_samples.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace onebatch {
namespace {

using Pair = std::array<std::int64_t, 2>;

// The sample's number is one of the whole data, of which `data` may be a part.
void check_label(const Dataset& data, std::size_t target, const Label& label, std::int64_t num_classes) {
  if (label.value >= 0 && label.value < num_classes && label.value < k_most_classes) return;
  throw UserError(fmt::format("sample {} of {} holds the label {}: {}", label.sample, data.name_of(target), label.value,
                              wrong_label(label.value, num_classes)));
}

bool is_a_devices(const std::string& words) {
  return words.find("CUDA error") != std::string::npos || words.find("CUDA driver") != std::string::npos;
}

Replica::Forward first_forward(Replica& replica, const Dataset& data, const Configuration& configuration,
                               const Batch& batch, const Pair& samples) {
  try {
    return replica.forward(batch, {replica.seed, 0, samples});
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string words = own_words(error);
    if (is_out_of_memory(error) || is_a_devices(words)) throw;
    refuse_samples(batch, data, configuration, words);
  }
}

SeenShapes seen(Replica& replica, const Dataset& data, const Configuration& configuration, const Pair& samples) {
  const Batch batch = replica.load(data, samples).batch;
  const Replica::Forward made = first_forward(replica, data, configuration, batch, samples);
  if (!made.outputs.defined() || !batch.targets.defined()) return {};
  return {made.outputs.sizes().vec(), batch.targets.sizes().vec()};
}

// Where the longest have as many positions as classes, the shortest have not.
std::vector<Pair> telling_samples(const Dataset& data) {
  const auto longest = data.costliest(2);
  std::vector<Pair> samples = {{longest[0], longest[1]}};
  const auto lengths = data.lengths();
  if (lengths.empty()) return samples;
  const auto shortest = std::min_element(lengths.begin(), lengths.end()) - lengths.begin();
  samples.push_back({shortest, shortest});
  return samples;
}

}  // namespace

void check_targets(const LossConfiguration& loss, const Dataset& data, std::int64_t num_classes,
                   const std::string& key) {
  if (targets_of(loss) == Targets::none) return;
  const std::int64_t some = 0;
  const Batch first = data.gather({&some, 1}, at::kFloat);
  if (!first.targets.defined())
    throw UserError("loss.kind needs a target: write " + key +
                    ".target, or loss.kind = \"model\" for a loss that needs none");
  if (first.targets.scalar_type() != at::kLong) {
    if (targets_of(loss) == Targets::numbers) return;
    throw UserError(data.name_of(first.inputs.size()) + " holds floating-point numbers, but loss.kind = \"" +
                    loss.kind +
                    "\" needs class indices: save whole numbers, or write "
                    "loss.kind = \"mse\"");
  }
  const auto range = data.labels();
  if (!range) return;
  check_label(data, first.inputs.size(), range->least, num_classes);
  check_label(data, first.inputs.size(), range->largest, num_classes);
}

bool has_to_settle(const Loss& loss, const Dataset& data) {
  if (!loss.is_classification()) return false;
  const std::int64_t some = 0;
  const at::Tensor targets = data.gather({&some, 1}, at::kFloat).targets;
  return targets.defined() && targets.dim() > 1;
}

void check_outputs(Replica& replica, const Dataset& data, const Configuration& configuration) {
  const at::NoGradGuard no_grad;
  const SavedTensors before(replica.model->buffers());
  try {
    std::vector<SeenShapes> shapes;
    for (const Pair& samples : telling_samples(data)) shapes.push_back(seen(replica, data, configuration, samples));
    if (replica.loss.is_classification()) replica.loss.settle(shapes);
  } catch (const std::exception& error) {
    before.restore();
    if (!is_out_of_memory(error)) throw;
  }
  replica.device.empty_cache();
  before.restore();
}

}  // namespace onebatch
