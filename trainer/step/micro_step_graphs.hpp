// Micro-steps (forward, loss, backward, addition into the flat gradient) as graphs of the device: the kernels are
// recorded once for each shape of a micro-batch and started as one from then on, which spares the host their launches.
//
// Note [Replays change nothing]. A replay is the same kernels in the same order on the same addresses, so the gradient
// has the same bits, as long as nothing of a micro-step is the host's:
//  * Its first micro-batches of a shape run as ever: by then handles, workspaces, kernels and the chosen algorithms
//    are there, which must not be made while a graph is recorded.
//  * What it reads lies at addresses of its own: the batch, what masks are drawn by (noise_key()), the sums and the
//    loss scale's factor, each written before a replay. Parameters, gradient and buffers are updated where they
//    lie; before each step they are looked for there, and where one has moved the graphs are recorded again. What
//    autocast has cast is forgotten with each forward, so that no cast is of other weights.
//  * A copy from host memory, as of a mask that is drawn there, is refused while a graph is recorded (NoUploads),
//    and a wait is an error of the device's: such a model runs without. So does one whose forward was seen to draw
//    from the generators, to keep or to count something, and a kind of one's own unless asked for, which may keep
//    tensors that a graph would go on reading.
//  * Which parameters a backward reaches is noted again with each replay. Who listens for parameters that are final
//    is told of ordinary micro-steps alone: where buckets are sent early, the last of a step is one.
//  * Graphs have memory of their own, one pool for all. They are kept only where as much again is free, so that
//    whatever fits without them fits beside them: validation, a shape's first micro-batches, a plan's other sizes.
//  * Before a graph is used, its replay is compared bit by bit with an ordinary micro-step of samples that it was
//    not recorded with. Where bits differ, the ordinary one runs again: a replay may be as far from it as it is
//    from itself. Else there are no graphs.
#pragma once

#include "trainer/device/device_graph.hpp"
#include "trainer/replica/replica.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace onebatch {

class MicroStepGraphs {
 public:
  struct MicroStep {
    /// Of a batch on the device. Adds its gradient to the flat one and its loss and weight to Numbers; changes nothing
    /// else of the host's. `key`: ForwardContext's, which stays undefined where no layer draws by it.
    std::function<void(const Batch&, at::Tensor& key)> run;
    /// The micro-batch's noise_key().
    std::function<at::Tensor()> key;
  };

  MicroStepGraphs(Replica& replica, std::unique_ptr<DeviceGraphs> device);

  /// Scalars on the device at addresses that stay.
  struct Numbers {
    at::Tensor loss_sum;    // float64
    at::Tensor weight_sum;  // float64 [2], where the model tells it: see WeightSum
    at::Tensor factor;      // of the loss, see Note [Loss scale]
  };
  /// Before a step's micro-batches: sums of zero.
  const Numbers& begin_step();

  /// Runs the micro-step on the batch, or replays what was recorded of it. May throw what the micro-step throws.
  void run(const Batch& batch, const MicroStep& micro_step);

  /// Whether there are graphs, and so memory that they hold.
  [[nodiscard]] bool is_holding() const;
  /// Gives that memory back. Shapes that come again are recorded again.
  void release();
  /// From here on there are no graphs.
  void give_up(const std::string& why);

  /// What all ranks are to be told; empty: nothing.
  struct News {
    std::string recorded;
    std::string given_up;
  };
  [[nodiscard]] bool has_news() const { return !news_.recorded.empty() || !news_.given_up.empty(); }
  News take_news();
  /// Another rank has told that it has graphs: once is enough.
  void recorded_is_said() { said_ = true; }

 private:
  struct OfOneShape {
    std::int64_t ordinary = 0;  // micro-batches that have run without a graph
    std::int64_t checks = 0;
    Batch batch;     // what the graph reads
    at::Tensor key;  // and what its masks are drawn by; undefined: it has none
    std::unique_ptr<DeviceGraph> graph;
    std::vector<std::size_t> reached;  // parameters
    bool trusted = false;
  };
  struct Watched {
    at::Tensor tensor;
    const void* address;
  };

  OfOneShape* of(const Batch& batch);
  static at::Tensor run_ordinary(const Batch& batch, const MicroStep& micro_step);
  void record(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step);
  std::string record_into(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step);
  void check(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step);
  std::string judge(OfOneShape& shape, const Batch& batch, const MicroStep& micro_step,
                    const std::vector<at::Tensor>& before, const std::vector<at::Tensor>& replayed);
  void trust(OfOneShape& shape, const Batch& batch);
  [[nodiscard]] std::vector<at::Tensor> changed_by_a_micro_step() const;
  void watch_addresses();
  [[nodiscard]] bool have_moved() const;

  Replica& replica_;
  std::unique_ptr<DeviceGraphs> device_;
  Numbers numbers_;
  double factor_ = 0.0;
  std::map<std::vector<std::int64_t>, OfOneShape> shapes_;
  std::int64_t pool_bytes_ = 0;
  std::vector<Watched> watched_;
  bool given_up_ = false;
  bool said_ = false;
  News news_;
};

}  // namespace onebatch
