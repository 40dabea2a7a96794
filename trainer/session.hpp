// One run of one configuration on all ranks: the library's front door. Free of LibTorch, so that a program compiles in a second.
#pragma once

#include "comm/world.hpp"
#include "trainer/configuration.hpp"
#include "trainer/observer.hpp"

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>

namespace onebatch {

struct SessionOptions {
  std::filesystem::path run_dir;           // where checkpoints, metrics and samples go; made by the caller on rank 0
  std::function<void()> accepted = [] {};  // train: rank 0 calls it once all checks have passed, before anything is measured or written
  std::filesystem::path timeline_file;     // train: where rank 0 writes the trace of all ranks; empty = nowhere
  // train, where a rank is lost, in a process that was forked: why it may not write into run_dir (any more), empty where it may, and then,
  // with `takes_it`, nobody else may until it ends; and what came of saving.
  std::function<std::string(bool takes_it)> why_not_write = [](bool) { return std::string(); };
  std::function<void(const std::string& line)> tell_of_loss = [](const std::string&) {};
  const std::atomic<int>* stop_requested = nullptr;  // set to a signal's number by the program's handler; 0 = go on
};

struct VerifyOptions {
  double tolerance = 0.0;               // 0 = the default of the precision
  std::filesystem::path save_gradient;  // where rank 0 writes the gradient as safetensors; empty = nowhere
};

/// Every member function is collective. Throws UserError, DoesNotFitError, comm::CommError or LibTorch's errors.
class Session {
 public:
  /// Opens the data, builds the model on this rank's device (bound here) and checks that they fit together.
  Session(Configuration configuration, comm::World& world, Observer& observer, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Measures every rank's device, or returns what was measured already. Leaves nothing behind (proved by digest).
  const ClusterProfile& probe();
  /// Probes unless a profile was given, and plans.
  const EpochPlan& plan();
  /// Plans with this profile instead of probing. Its ranks must be the world's.
  void use_profile(ClusterProfile profile);
  /// Follows this plan instead of making one; `origin` is its name. Throws AgreedError where it is not of this world and batch.
  void use_plan(EpochPlan plan, const std::string& origin);
  TrainResult train();
  VerifyReport verify(const VerifyOptions& options);
  /// Metrics on the validation data with the weights of a checkpoint (a step-N folder, or a run's folder for its latest).
  EvaluationResult evaluate(const std::filesystem::path& checkpoint);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// What was built and what is here: LibTorch, BLAS, threads, CUDA, NCCL, devices. A line each, "name: value".
std::vector<std::string> describe_build_and_host();

}  // namespace onebatch
