// A step's work on a device (forward, loss, backward, addition into the flat gradient) as graphs: the kernels are
// recorded once for each shape of a micro-batch, or of a round of them, and started as one from then on, which spares
// the host their launches.
//
// Note [Replays change nothing]. A replay is the same kernels in the same order on the same addresses, so the gradient
// has the same bits, as long as nothing of the work is the host's:
//  * What is first of a shape runs as ever: by then handles, workspaces, kernels and the chosen algorithms are there,
//    which must not be made while a graph is recorded.
//  * What it reads lies at addresses of its own: the batch, what masks are drawn by (noise_key()), the sums and the
//    loss scale's factor, each written before a replay. Parameters, gradient and buffers are updated where they
//    lie; before each step they are looked for there, and where one has moved the graphs are recorded again. What
//    autocast has cast is forgotten with each forward, so that no cast is of other weights.
//  * A copy from host memory, as of a mask that is drawn there, is refused while a graph is recorded (NoUploads),
//    and a wait is an error of the device's: such a model runs without. So does one whose forward was seen to draw
//    from the generators, to keep or to count something, and a kind of one's own unless asked for, which may keep
//    tensors that a graph would go on reading.
//  * A round of micro-batches that share BatchNorm's statistics with other ranks is a graph from each exchange to the
//    next: what was sent is read behind one, and what has come is written before the other, where it reads it. The
//    others' counts are recorded with the kernels: where they are not the same again, the round runs as ever from its
//    start, with what has been met by then.
//  * Which parameters a backward reaches is noted again with each replay. Who listens for parameters that are final
//    is told of ordinary micro-steps alone: where buckets are sent early, the last of a step is one. Of a round he is
//    told when the part in which a parameter became final has been started.
//  * Graphs have memory of their own, one pool for all. They are kept only where as much again is free, so that
//    whatever fits without them fits beside them: validation, a shape's first micro-batches, a plan's other sizes.
//  * Before a graph is used, its replay is compared bit by bit with ordinary work of samples that it was not recorded
//    with, and so is what it sends; it is given what the others sent to that work. Where bits differ, the ordinary one
//    runs again: a replay may be as far from it as it is from itself. Else there are no graphs.
#pragma once

#include "trainer/device/device_graph.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/step/recorded_work.hpp"
#include "trainer/step/step_numbers.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace onebatch {

class StepGraphs {
 public:
  StepGraphs(Replica& replica, std::unique_ptr<DeviceGraphs> device);

  /// At addresses that stay. Before a step's work: sums of zero.
  const StepNumbers& begin_step();

  /// Does the work, or replays what was recorded of it. May throw what the work throws.
  void run(StepWork work, Meetings& with);

  /// Before a round of these sizes: whether it may be recorded, or compared with ordinary work, for which nobody may be
  /// told of parameters before all of it is done. Asks for that in some steps of a run, and after that no more.
  [[nodiscard]] bool ask_for_quiet(const std::vector<std::int64_t>& others, const std::vector<std::int64_t>& sizes);

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
    WorkKind kind = WorkKind::micro_step;
    std::vector<std::int64_t> others;
    std::vector<std::int64_t> sizes;  // of the batches
    std::int64_t ordinary = 0;        // times that it has run without a graph
    std::int64_t checks = 0;
    std::int64_t mismatches = 0;  // replays in a row in which other ranks had other counts
    std::int64_t forgotten = 0;   // times that there were too many
    bool is_left_alone = false;   // is recorded no more
    std::unique_ptr<RecordedWork> recorded;
    std::vector<std::size_t> reached;  // parameters
    bool trusted = false;

    [[nodiscard]] bool is_to_be_compared() const { return recorded != nullptr && !trusted; }
  };
  // What is left of work that has run, to be recorded.
  struct Trace {
    StepWork work;  // batches without memory
    std::vector<at::Tensor> keys;
    Notes notes;
  };
  struct Watched {
    at::Tensor tensor;
    const void* address;
  };

  OfOneShape* of(const StepWork& work);
  void run_and_record(OfOneShape& shape, StepWork work, Meetings& with);
  std::string record(OfOneShape& shape, const Trace& trace);
  void check(OfOneShape& shape, StepWork work, Meetings& with);
  std::string judge(OfOneShape& shape, StepWork work, const Notes& notes, const std::vector<at::Tensor>& before);
  bool is_as_near(StepWork work, const Notes& notes, const std::vector<at::Tensor>& before,
                  const std::vector<at::Tensor>& ordinary, const std::vector<at::Tensor>& replayed);
  void trust(OfOneShape& shape);
  void others_differ(OfOneShape& shape);
  static void renew(OfOneShape& shape);
  void let_go();
  [[nodiscard]] std::vector<at::Tensor> changed_by_the_work() const;
  void watch_addresses();
  [[nodiscard]] bool have_moved() const;

  Replica& replica_;
  std::unique_ptr<DeviceGraphs> device_;
  StepNumbers numbers_;
  double factor_ = 0.0;
  std::map<std::vector<std::int64_t>, OfOneShape> shapes_;
  std::int64_t pool_bytes_ = 0;
  std::int64_t quiet_steps_ = 0;
  std::vector<Watched> watched_;
  bool given_up_ = false;
  bool said_ = false;
  News news_;
};

}  // namespace onebatch
