// The run: step after step until the end, a signal or an error.
#pragma once

#include "trainer/checkpoint/run_saver.hpp"
#include "trainer/metrics/step_writer.hpp"
#include "trainer/planning.hpp"
#include "trainer/session.hpp"

#include <chrono>

namespace onebatch {

struct LoopParts {
  const Configuration& configuration;
  const SessionOptions& options;
  Replica& replica;
  const Dataset& data;
  const Dataset* validation;  // may be none
  GradientReducer& reducer;
  comm::Communicator& control;
  Observer& observer;
  RunPlans& plans;
};

class TrainingLoop {
 public:
  explicit TrainingLoop(const LoopParts& parts);
  /// Goes on from the run's checkpoint where there is one and the configuration allows. Collective.
  TrainResult run();

 private:
  void resume();
  void refuse_another_run(const RunState& saved, const std::string& checkpoint) const;
  void begin_again();
  void reuse_plan(const EpochPlan& plan, const std::vector<std::string>& devices);
  StepRecord run_step();
  StepTotals run_until_it_fits(const std::vector<std::int64_t>& batch, double lr);
  void after_step(const StepRecord& record, bool last);
  void check_replicas();
  [[noreturn]] void stop_at_not_finite(const std::vector<std::int64_t>& batch, const OrderPosition& before);
  void validate();
  [[nodiscard]] bool is_time_to_save() const;
  void save();
  void warn(const std::string& line) const;
  [[nodiscard]] double share() const;
  [[nodiscard]] TrainResult result() const;

  LoopParts parts_;
  std::vector<std::string> devices_;  // per rank
  std::int64_t step_ = 0;
  std::int64_t total_steps_ = 0;
  std::int64_t saved_step_ = -1;
  bool stopping_ = false;
  bool save_due_ = false;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
  std::optional<SampleOrder> order_;
  std::optional<TrainingStep> training_step_;
  std::optional<StepWriter> writer_;
  std::vector<double> step_seconds_;
  std::int64_t timed_samples_ = 0;
  std::int64_t reduced_bytes_ = 0;  // of the last step
  std::int64_t mended_replicas_ = 0;
  std::int64_t out_of_memory_events_ = 0;
  std::int64_t replans_ = 0;
  double last_loss_ = 0.0;
  std::optional<EvaluationResult> validation_;
  RunSaver saver_;
};

/// Configuration that a resumed run must share with the checkpoint, by key.
std::map<std::string, std::string> run_identity(const Configuration& configuration, const Dataset& data);

}  // namespace onebatch
