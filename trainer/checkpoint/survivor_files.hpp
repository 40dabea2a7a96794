// The files of a checkpoint that is made of one rank's memory and of what the others have left in shared memory: by a
// process that has forked, where LibTorch's threads are gone. So tensors are read as plain memory here, never computed
// with.
#pragma once

#include "trainer/checkpoint/checkpoint_folder.hpp"
#include "trainer/checkpoint/run_state.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/replica/replica_state.hpp"

#include <optional>
#include <span>

namespace onebatch {

/// What each rank keeps by itself of a step, as bytes: BatchNorm's running statistics and the states of its random
/// generators.
using OwnBytes = std::span<const std::byte>;

/// Where forwards draw from the rank's own generators, no run goes on without their states.
enum class GeneratorStates { optional, needed };

class SurvivorFiles {
 public:
  /// The tensors stay the replica's.
  SurvivorFiles(const Replica& replica, GeneratorStates generator_states);

  [[nodiscard]] std::size_t own_bytes() const { return own_bytes_; }
  /// As they are now. In the run.
  void write_own(std::span<std::byte> to) const;
  /// From now on all that is no running statistic is to stay as it is.
  void note_versions();
  /// The first tensor that has been written to since; empty: none.
  [[nodiscard]] std::string changed_tensor() const;
  /// Every rank has running statistics of its own.
  [[nodiscard]] bool is_local() const { return is_local_; }

  /// Of all that is to be the same on every rank: `own` is this rank's.
  [[nodiscard]] Digest digest(RunState state, OwnBytes own) const;
  /// Throws std::runtime_error where something of a rank is missing that cannot be done without. `own` has an entry per
  /// rank; the views are of memory that has to stay.
  [[nodiscard]] std::vector<CheckpointFile> files(const RunState& state,
                                                  const std::vector<std::optional<OwnBytes>>& own, int rank) const;

 private:
  struct Piece {
    std::string name;
    at::Tensor tensor;
    std::size_t begin = 0;  // in a rank's own bytes
    std::size_t bytes = 0;
  };
  class Content;
  void add_piece(std::vector<Piece>& pieces, const NamedTensor& tensor);
  [[nodiscard]] const Piece* statistic(const at::Tensor& tensor) const;
  void add_model(Content& content, const RunState& state, const std::vector<std::optional<OwnBytes>>& own,
                 int rank) const;
  void require_statistics(const std::vector<std::optional<OwnBytes>>& own) const;

  std::vector<NamedTensor> model_;
  std::vector<NamedTensor> optimizer_;
  std::vector<NamedTensor> steady_;      // between two updates
  std::vector<std::uint32_t> versions_;  // theirs, as LibTorch counts what is written in place
  std::vector<Piece> statistics_;
  std::vector<Piece> generators_;
  std::size_t own_bytes_ = 0;
  c10::Device device_;
  bool is_local_;
  GeneratorStates generator_states_;
};

}  // namespace onebatch
