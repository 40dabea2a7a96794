// A checkpoint's state.json: what a run must remember beside its tensors. No LibTorch here.
#pragma once

#include "trainer/base/plan.hpp"
#include "trainer/base/watched_metric.hpp"
#include "trainer/data/sample_order.hpp"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

/// What a run remembers of its validations.
struct ValidationState {
  bool operator==(const ValidationState&) const = default;

  std::int64_t step = -1;     // after which the last one was; -1 = there was none
  WatchState early_stopping;  // of run.early_stopping
  WatchState best;            // of checkpoint.keep_best
};

struct RunState {
  std::int64_t step = 0;  // optimizer steps done
  OrderPosition position;
  std::int64_t global_batch_size = 0;
  int world_size = 1;
  std::vector<std::string> devices;            // per rank
  std::vector<std::int64_t> shares;            // of ranks, in samples: of what the running statistics are
  std::optional<EpochPlan> plan;               // goes on unchanged where ranks, devices and batch are the same
  double loss_scale = 0.0;                     // 0 = none was kept
  std::int64_t loss_scale_steps = 0;           // since it has changed
  std::vector<std::int64_t> bases;             // of a reproducible sum, per parameter
  std::optional<ValidationState> validations;  // none: an earlier version has saved it
  /// Other names of parameters, and that under which each is trained; none: an earlier version has saved it.
  std::optional<std::map<std::string, std::string>> shared_names;
  std::map<std::string, std::string> identity;  // configuration that a resumed run must share, by key
};

std::string to_json(const RunState& state);
/// Throws UserError that names the field; `origin` (a file's name) is put in front.
RunState parse_run_state(const std::string& text, const std::string& origin);

}  // namespace onebatch
