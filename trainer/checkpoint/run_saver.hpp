// Saves a run while it trains: all ranks agree on a copy, and a thread of rank 0 makes files of it. See Note [Nothing
// is lost].
#pragma once

#include "trainer/checkpoint/background_save.hpp"
#include "trainer/checkpoint/host_copy.hpp"
#include "trainer/events/event_stream.hpp"
#include "trainer/replica/replica.hpp"

namespace onebatch {

/// Of one start. Only rank 0's says anything.
struct SaveTotals {
  std::int64_t saved = 0;
  std::int64_t waits = 0;  // saves that had to wait until the one before was written
  // For which training stood still because of all of them, waiting for their copies included.
  double held_up_seconds = 0;
};

class RunSaver {
 public:
  RunSaver(std::filesystem::path checkpoints, const CheckpointConfiguration& configuration, comm::Communicator& control,
           EventStream& events);
  /// What is under way is brought to an end, for which a rank that leaves because of another's failure takes
  /// comm.timeout_seconds at most.
  ~RunSaver();
  RunSaver(const RunSaver&) = delete;
  RunSaver& operator=(const RunSaver&) = delete;

  /// Begins on rank 0 to copy what is trained, and then to write it, as soon as the save before is done. Until
  /// wait_for_copy() nothing may write to parameters or optimizer. `share` weighs this rank's running statistics.
  /// `mark`: it is the best one as soon as it is there. Throws AgreedError. Collective.
  void save(const RunState& state, const Replica& replica, double share, const std::optional<BestMark>& mark = {});
  /// The checkpoint of that step, which has been saved, is the best one: waits until it is written, marks it, and lets
  /// the one before it go. Throws AgreedError. Collective.
  void keep_as_best(const BestMark& mark);
  /// Whether from now on a save removes older checkpoints, as checkpoint.keep says; else all stay.
  void let_remove(bool lets) { removes_ = lets; }
  /// Until what is being saved has been copied. Not collective.
  void wait_for_copy();
  /// Says what has been saved since. What a save has failed of since, which all ranks are to be told. Not collective.
  std::exception_ptr look();
  /// Waits for the save under way. Throws AgreedError. Collective.
  void finish();
  [[nodiscard]] const SaveTotals& totals() const { return totals_; }

 private:
  struct Write {
    bool from_copy = false;  // training may go on meanwhile
    std::function<std::filesystem::path()> files;
  };
  [[nodiscard]] Write prepare(const RunState& state, const LiveState& live, const Retention& retention);
  [[nodiscard]] Retention retention() const {
    return {.keep = removes_ ? configuration_.keep : 0, .keep_every = configuration_.keep_every};
  }
  [[nodiscard]] bool has_room_for(std::size_t bytes) const;
  // Waits for the end of what is under way, and says what was saved.
  void take();

  std::filesystem::path checkpoints_;
  CheckpointConfiguration configuration_;
  bool removes_ = true;
  comm::Communicator& control_;
  EventStream& events_;
  std::shared_ptr<HostCopy> copy_ = std::make_shared<HostCopy>();
  BackgroundSave background_;
  std::shared_future<void> copied_;  // of the save under way; not valid where that is known
  std::exception_ptr failure_;
  SaveTotals totals_;
};

}  // namespace onebatch
