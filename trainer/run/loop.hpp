// The run: step after step until the end, a signal or an error.
#pragma once

#include "trainer/checkpoint/run_checkpoint.hpp"
#include "trainer/checkpoint/run_saver.hpp"
#include "trainer/checkpoint/survivor_save.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/optim/pace.hpp"
#include "trainer/run/data_loading.hpp"
#include "trainer/run/planning.hpp"
#include "trainer/run/session.hpp"
#include "trainer/step/evaluation.hpp"

#include <chrono>
#include <functional>
#include <limits>
#include <set>

namespace onebatch {

struct LoopParts {
  const Configuration& configuration;
  const SessionOptions& options;
  Replica& replica;
  const MicroBatchRunner& runner;
  const Dataset& data;
  std::shared_ptr<const Dataset> readers_data;  // the same, for threads that may outlive the run
  const Dataset* validation;                    // may be none
  const SampleDrawing& drawing;
  const std::string& given_samples;  // see RunData
  GradientReducer& reducer;
  comm::Communicator& control;
  EventStream& events;
  RunPlans& plans;
  comm::World& world;
  StepGraphs* graphs;  // may be none
  bool draws_unkeyed;  // forwards draw from the ranks' generators
};

class TrainingLoop {
 public:
  explicit TrainingLoop(const LoopParts& parts);
  ~TrainingLoop() { parts_.plans.tables.set_stand_still({}); }
  TrainingLoop(const TrainingLoop&) = delete;
  TrainingLoop& operator=(const TrainingLoop&) = delete;
  /// Goes on from the run's checkpoint where there is one and the configuration allows. Collective.
  TrainResult run();

 private:
  void resume();
  bool settle_looking_back();
  void set_newer_aside();
  [[nodiscard]] std::string what_is_kept(bool good) const;
  [[nodiscard]] std::string an_earlier_checkpoint() const;
  void refuse_another_run(const RunState& saved, const std::string& checkpoint) const;
  void begin_again();
  void reuse_plan(const EpochPlan& plan, const std::vector<std::string>& devices);
  struct DoneStep {
    OrderPosition before = {};  // of the samples
    std::vector<std::int64_t> batch = {};
    StepTotals totals = {};
    StepRecord record = {};  // as far as it is known
    std::chrono::steady_clock::time_point start = {};
    std::optional<std::chrono::steady_clock::time_point> end = {};  // none: when its figures are there
  };
  // Steps, in loop_step.cpp. False where a late step turns out not to have been one: it is the next again.
  bool run_step();
  DoneStep make_step();
  bool settle(DoneStep done);
  void try_to_settle();
  void do_again(const DoneStep& done);
  [[nodiscard]] bool is_looked_at() const;
  [[nodiscard]] bool may_be_late() const;
  void begin_loading();
  void say_if_skipped(const DoneStep& done) const;
  [[nodiscard]] StepRecord record_of_position() const;
  void complete(DoneStep& done, double seconds) const;
  // The samples as an epoch trains with them.
  [[nodiscard]] TrainingData training_data(std::int64_t epoch) const;
  [[nodiscard]] SampleOrder order_from(const OrderPosition& start) const;
  StepTotals run_until_it_fits(const std::vector<std::int64_t>& batch, std::int64_t epoch, double lr);
  void after_step();
  [[nodiscard]] bool is_step_of_every(std::int64_t steps) const;
  [[nodiscard]] bool is_saved() const;
  void note_out_of_memory(const StepTotals& totals);
  void note_new_plan(event::Replanned::Cause cause);
  void check_replicas();
  [[noreturn]] void stop_at_weights_not_finite();
  [[noreturn]] void stop_at_not_finite(const std::vector<std::int64_t>& batch, const OrderPosition& before);
  [[nodiscard]] bool goes_on() const { return step_ < total_steps_ && !stopping_ && !ended_early(); }
  void say_where_it_begins() const;
  // Validations, and what hangs on them: in loop_checks.cpp and loop_best.cpp.
  [[nodiscard]] bool validation_is_due() const;
  void validate();
  void check_room() const;
  [[nodiscard]] EvaluationRequest evaluation_request() const;
  void go_on_validating(const std::optional<ValidationState>& saved, bool has_average);
  void settle_best();
  void check_watched();
  void judge();
  [[nodiscard]] double watched_value(const std::string& key, const WatchState& state);
  [[nodiscard]] bool ended_early() const;
  void say_what_was_best() const;
  void save_class_names() const;
  void say_skipped(const Dataset& data);
  void count_skipped();
  [[nodiscard]] bool is_time_to_save() const;
  void save(const std::optional<BestMark>& mark = {});
  [[nodiscard]] RunState run_state() const;
  [[nodiscard]] RunState progress() const;  // what of it a step changes
  void watch_for_losses();
  void measuring(const std::function<void()>& work);  // what may borrow the replica
  // What changes parameters, optimizer or loss scale begins with it: nobody needs them as they are any more.
  void begin_to_change(const char* what);
  [[nodiscard]] bool has_plan() const;
  [[nodiscard]] double share() const;
  [[nodiscard]] const Plan& plan_of_steps() const;
  static std::vector<std::int64_t> shares_of(const Plan& plan);
  void hand_on_statistics();
  [[nodiscard]] std::optional<double> lr_of_last_step() const;
  [[nodiscard]] TrainResult result() const;

  LoopParts parts_;
  std::vector<std::string> devices_;  // per rank
  std::int64_t step_ = 0;
  std::optional<Pace> pace_;
  std::int64_t total_steps_ = 0;
  std::int64_t saved_step_ = -1;
  std::filesystem::path resumed_from_;  // the checkpoint; empty: it began anew
  bool is_own_ = false;                 // that is one of this run's own
  bool looks_back_ = false;  // nothing is left to do, and its record stays: it is complete, or at an older one
  bool stopping_ = false;
  bool save_due_ = false;
  bool reuses_plan_ = false;          // of before, whether or not it was needed yet
  std::vector<std::int64_t> shares_;  // of ranks, in samples: of what the running statistics are
  bool told_of_no_loss_ = false;
  std::chrono::steady_clock::time_point saved_ = std::chrono::steady_clock::now();
  std::optional<SampleOrder> order_;
  std::optional<TrainingStep> training_step_;
  std::optional<DoneStep> late_;     // the last, where its figures are not read yet: Note [Figures a step late]
  std::int64_t reads_at_once_ = -1;  // the step that does, though it need not
  std::chrono::steady_clock::time_point end_of_last_ = {};
  std::optional<DataLoading> loading_;
  double data_wait_seconds_ = 0.0;  // of the rank that waited most
  std::vector<double> step_seconds_;
  std::int64_t timed_samples_ = 0;
  std::int64_t reduced_bytes_ = 0;  // of the last step
  std::int64_t mended_replicas_ = 0;
  std::int64_t out_of_memory_events_ = 0;
  std::int64_t replans_ = 0;
  std::int64_t told_replans_ = 0;                                // to those that may have to save without this loop
  double last_loss_ = std::numeric_limits<double>::quiet_NaN();  // no step was made
  std::optional<double> last_lr_;
  std::set<std::string> skipped_files_;
  std::optional<EvaluationResult> validation_;
  ValidationState validated_;
  bool watched_before_ = false;  // for the best, the same metric: by what has saved the checkpoint
  RunSaver saver_;
  std::optional<SurvivorSave> survivors_;  // where there are other ranks, and a folder
};

}  // namespace onebatch
