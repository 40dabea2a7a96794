// What is saved when a rank is lost: the last step that the ranks that are left have finished, where they have the same
// state of it.
//
// Note [Survivors save what is whole]. MPI ends with the first rank that dies, and the launcher gives the others a
// second. So the watching thread of each forks: the child has the step's memory as it is at that moment, leaves the
// launcher's process group, and may take its time. A step is whole from the moment its update has ended to the moment
// the next one's begins; an update that is under way is waited for, and none begins after that. What forwards change
// meanwhile (running statistics, generators) is taken from what every rank has laid down in shared memory before the
// step's last sum. The children vote with the step and a digest of it (comm/survivor_vote.hpp); one of them writes.
// Where anything of this cannot be shown, nothing is written, and one line says why.
#pragma once

#include "comm/survivor_vote.hpp"
#include "comm/watchdog.hpp"
#include "comm/world.hpp"
#include "trainer/base/session_options.hpp"
#include "trainer/checkpoint/survivor_files.hpp"

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <semaphore>

namespace onebatch {

class SurvivorSave {
 public:
  struct Parts {
    const Replica& replica;
    const SessionOptions& options;  // where the run's folder is, who may write there, who tells
    comm::World& world;
    RunState state;  // at the start: the step from which the run goes on is saved, or is the first
    Retention retention;
    comm::Replicas replicas = comm::Replicas::compared;
    GeneratorStates generator_states = GeneratorStates::optional;
  };

  /// Collective. From now on, until it ends, SIGTERM and a deadline that passes come here first.
  explicit SurvivorSave(Parts parts);
  ~SurvivorSave();
  SurvivorSave(const SurvivorSave&) = delete;
  SurvivorSave& operator=(const SurvivorSave&) = delete;

  /// This rank's micro-batches of the step that comes after the last one are done: what they have changed is final.
  void keep_own();
  /// Before the first write to parameters, optimizer or loss scale. Where a loss is known already it does not return.
  /// `what` is done with them, in words: where it does not end in time, that is why nothing is saved.
  void begin_update(const char* what = "its update was not done");
  /// Restored: nothing was updated, and the forwards' changes are undone.
  enum class StepEnd { updated, restored };
  /// After the last write: a step is done. `progress` is what of the run's state a step changes.
  void end_step(RunState progress, StepEnd end);
  /// After begin_update(), where the step that was done stays the last one: it is whole again.
  void end_of_use();
  /// Between begin_update() and the end.
  [[nodiscard]] bool in_use() const { return updating_; }
  void note_plan(const EpochPlan& plan);
  /// All ranks know that one has failed, and are about to end: the others save what can be saved first. A rank calls
  /// the one that is true of it. Collective.
  void this_rank_failed();
  void another_rank_failed();
  /// The same where this rank alone knows: an operation with the others has ended in an error.
  void lost();

 private:
  void wait_for_answer() const;
  [[nodiscard]] std::chrono::milliseconds longest_goodbye() const;
  void answer(const comm::LossCall& call);
  void wait_for_child(std::chrono::milliseconds patience);
  // In use: an update was under way, and did not end in time.
  enum class StepState { whole, in_use };
  [[noreturn]] void live_on(const comm::LossCall& call, StepState step);
  [[nodiscard]] std::string vote_and_save(const comm::LossCall& call, StepState step);
  [[nodiscard]] std::string why_not_whole(StepState step) const;
  [[nodiscard]] std::string save(const comm::Decision& decision, const std::string& step,
                                 const std::string& after) const;
  [[nodiscard]] std::string loss_text(const std::vector<comm::Vote>& votes) const;

  Parts parts_;
  RunState state_;  // of the last step that is done
  SurvivorFiles files_;
  comm::SurvivorBoard* board_ = nullptr;
  std::string why_never_;          // where there is no board
  std::binary_semaphore gate_{1};  // held while an update is under way, and for ever once a loss is known
  bool updating_ = false;
  std::atomic<const char*> in_use_{""};  // why
  bool own_is_known_ = true;             // what ranks have laid down is the step's
  std::int64_t saved_step_;
  bool notes_the_end_;
  pid_t child_ = 0;
  std::atomic<bool> answered_{false};
};

}  // namespace onebatch
