// Reading ahead in a run: which micro-batches come next, how many threads read them, and what is said of waiting.
#pragma once

#include "trainer/data/sample_order.hpp"
#include "trainer/data/wait_share.hpp"
#include "trainer/run/plan_book.hpp"
#include "trainer/step/step.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace onebatch {

/// Each rank has its own, which changes nothing of what is trained.
class DataLoading {
 public:
  struct Parts {
    const Configuration& configuration;
    const Replica& replica;
    std::shared_ptr<const Dataset> data;
    PlanBook& book;
    comm::Communicator& control;
    EventStream& events;
    int ranks_on_node;
  };
  explicit DataLoading(const Parts& parts);

  /// Before a step: announces its micro-batches and those of the next ones, as many as are left at most. `order`: it
  /// gives the step's samples next.
  void announce(const SampleOrder& order, std::int64_t steps_left);
  /// Null where nothing is read ahead.
  [[nodiscard]] Loader* loader() { return loader_ ? &*loader_ : nullptr; }
  /// What a step took, on all ranks alike. Collective every few steps.
  void note(const StepTotals& totals, double step_seconds, std::int64_t step);

 private:
  void begin(std::int64_t workers);
  bool announce_step();
  [[nodiscard]] std::int64_t num_workers() const { return loader_ ? loader_->workers() : 0; }
  std::int64_t start_needed();
  void tell_of_workers(std::int64_t started, std::int64_t step);
  void warn_of_waiting(std::int64_t step);
  [[nodiscard]] std::string advice(std::size_t rank) const;

  Parts parts_;
  std::int64_t most_workers_;
  std::optional<Loader> loader_;
  std::optional<SampleOrder> coming_;  // from the first step on that is not announced
  std::int64_t edition_ = -1;          // of the plan that the announced are of
  std::int64_t steps_seen_ = 0;
  WaitShare recent_;
  WaitShare since_change_;          // of the number of workers, on any rank
  std::vector<RankWorkers> ranks_;  // at the last look
  bool warned_ = false;
};

}  // namespace onebatch
