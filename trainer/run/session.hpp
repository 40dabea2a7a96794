// One run of one configuration on all ranks: the library's front door. Free of LibTorch, so that a program compiles in
// a second.
#pragma once

#include "comm/world.hpp"
#include "trainer/base/configuration.hpp"
#include "trainer/base/session_options.hpp"
#include "trainer/base/weights_choice.hpp"
#include "trainer/events/event_stream.hpp"

#include <filesystem>
#include <memory>

namespace onebatch {

struct VerifyOptions {
  double tolerance = 0.0;               // 0 = the default of the precision
  std::filesystem::path save_gradient;  // where rank 0 writes the gradient as safetensors; empty = nowhere
};

/// Every member function is collective. Throws UserError, DoesNotFitError, comm::CommError or LibTorch's errors.
class Session {
 public:
  /// Opens the data, builds the model on this rank's device (bound here) and checks that they fit together. What
  /// happens in the run is told to `listeners`, on rank 0; what a rank fails of, on that rank.
  Session(Configuration configuration, comm::World& world, std::vector<Listener> listeners, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Measures every rank's device, or returns what was measured already. Leaves nothing behind (proved by digest).
  const ClusterProfile& probe();
  /// Probes unless a profile was given, and plans.
  const EpochPlan& plan();
  /// Plans with this profile instead of probing. Its ranks must be the world's.
  void use_profile(ClusterProfile profile);
  /// Follows this plan instead of making one; `origin` is its name. Throws AgreedError where it is not of this world
  /// and batch.
  void use_plan(EpochPlan plan, const std::string& origin);
  TrainResult train();
  VerifyReport verify(const VerifyOptions& options);
  /// Metrics on the validation data with the weights of a checkpoint (a step-N folder, or a run's folder for its
  /// latest, or a run's checkpoints/best).
  EvaluationResult evaluate(const std::filesystem::path& checkpoint, WeightsChoice weights = WeightsChoice::automatic);

 private:
  EventStream events_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace onebatch
