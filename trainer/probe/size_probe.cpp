#include "trainer/probe/size_probe.hpp"

#include "trainer/base/error.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/device/deterministic.hpp"
#include "trainer/device/failed_backward.hpp"
#include "trainer/replica/called_from.hpp"
#include "trainer/step/accumulation.hpp"

#include <algorithm>

namespace onebatch {
namespace {

// Only BatchNorm's own words mean that a size is too small, and only there.
std::optional<std::string> refusal(const std::exception& error, std::int64_t size) {
  const std::string text = error.what();
  if (size > 2 || text.find("Expected more than 1 value per channel when training") == std::string::npos)
    return std::nullopt;
  return text.substr(0, text.find('\n'));
}

}  // namespace

SearchOptions SizeProbe::search_options() {
  replica_.device.empty_cache();  // what earlier work has left there is not held
  SearchOptions options;
  options.limit_bytes = replica_.device.memory_limit_bytes();
  options.resident_bytes = replica_.device.current_bytes();
  options.block_bytes = replica_.device.block_bytes();
  return options;
}

double SizeProbe::micro_step(std::int64_t size) {
  return accumulate_gradient(runner_, data_, data_.costliest(size), {{size, 1}}, 0).compute_seconds;
}

void SizeProbe::update() {
  replica_.gradients.flat().div_(1.0);
  // A world of one's norm: the trial must not wait for ranks that try other sizes.
  replica_.gradients.flat().norm();
  replica_.optimizer.step(0.0, std::vector<double>(replica_.gradients.parameters().size(), 1.0));
}

void SizeProbe::refuse_without_deterministic_form(const std::exception& error) {
  const std::string operation = operation_without_deterministic_form(error);
  if (operation.empty()) return;
  const auto samples = data_.costliest(std::min<std::int64_t>(2, data_.size()));
  throw UserError(refusal_of(operation, called_from(operation, replica_, data_, samples)));
}

TrialResult SizeProbe::run_trial(std::int64_t size) {
  fault_point("probe", size);
  TrialResult result;
  result.trial.size = size;
  // Blocks of another size's trial do not serve this one: its peak is its own, whatever was tried before.
  replica_.device.empty_cache();
  replica_.device.reset_peak();
  try {
    replica_.gradients.begin_step();
    const double first = micro_step(size);
    result.trial.seconds = std::min(first, micro_step(size));
    update();
    for (int step = 1; step < num_steps_; ++step) {
      replica_.gradients.begin_step();
      result.trial.seconds = std::min(result.trial.seconds, micro_step(size));
      update();
    }
    result.trial.fits = true;
  } catch (const std::exception& error) {
    result.trial.out_of_memory = is_out_of_memory(error);
    if (!result.trial.out_of_memory) result.refused = refusal(error, size);
    if (!result.trial.out_of_memory && !result.refused) {
      refuse_without_deterministic_form(error);
      throw;
    }
  }
  result.trial.peak_bytes = replica_.device.peak_bytes();
  if (!result.trial.fits) recover_from_out_of_memory(replica_.device);
  return result;
}

}  // namespace onebatch
