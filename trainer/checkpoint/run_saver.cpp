#include "trainer/checkpoint/run_saver.hpp"

#include "comm/long_work.hpp"
#include "comm/stopwatch.hpp"
#include "comm/watchdog.hpp"
#include "trainer/base/fault_point.hpp"
#include "trainer/batch_norm/running_statistics.hpp"
#include "trainer/checkpoint/by_rank.hpp"
#include "trainer/device/agreement.hpp"
#include "trainer/device/generators.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/tensor_file.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr double k_spare_share = 0.25;              // of a copy's memory, which has to be free beside it
constexpr double k_longest_wait_seconds = 86400.0;  // whatever comm.timeout_seconds is
constexpr double k_gibibyte = 1024.0 * 1024.0 * 1024.0;

TensorsWriter writer_of(const std::vector<NamedTensor>& tensors) {
  return [&tensors](const fs::path& file, const Metadata& metadata) { return save_tensors(file, tensors, metadata); };
}

// Straight from where they are trained: a copy of a GPU's is one file's at a time.
std::vector<CheckpointFile> files_of(const RunState& state, const LiveState& live) {
  CheckpointWriters writers = {.model = writer_of(live.model), .optimizer = writer_of(live.optimizer)};
  if (!live.buffers.empty()) writers.buffers = writer_of(live.buffers);
  if (!live.generators.empty()) writers.generators = writer_of(live.generators);
  return checkpoint_files(state, std::move(writers));
}

std::string gibibytes(double bytes) {
  return fmt::format("{:.2f} GiB", bytes / k_gibibyte);
}

}  // namespace

RunSaver::RunSaver(fs::path checkpoints, const CheckpointConfiguration& configuration, comm::Communicator& control,
                   EventStream& events)
    : checkpoints_(std::move(checkpoints)), configuration_(configuration), control_(control), events_(events) {
  if (control_.watchdog() != nullptr)
    control_.watchdog()->put_off_end_while([this] { return background_.is_writing(); });
}

RunSaver::~RunSaver() {
  comm::Watchdog* watchdog = control_.watchdog();
  if (watchdog != nullptr) watchdog->put_off_end_while({});
  if (!background_.is_under_way()) return;
  try {
    const comm::LongWork writing(control_, "writing a checkpoint to its end");
    const double timeout = watchdog != nullptr ? watchdog->timeout_seconds() : k_longest_wait_seconds;
    if (!background_.wait_for(std::chrono::duration<double>(std::min(timeout, k_longest_wait_seconds)))) return;
    if (look()) std::rethrow_exception(failure_);
  } catch (const std::exception& error) {
    events_.warn(error.what());  // what the process ends of is something else
  }
}

void RunSaver::save(const RunState& state, const Replica& replica, double share, const std::optional<BestMark>& mark) {
  const comm::Stopwatch watch;
  totals_.waits += background_.is_writing() ? 1 : 0;
  finish();
  const AveragedStatistics averaged(replica.own_statistics(), share, control_);
  LiveState live;
  live.buffers = gather_by_rank(averaged.own(), control_);
  live.generators = gather_by_rank(generator_states(replica.device.device()), control_);
  Write write;
  agree(control_, [&] {
    fault_point("checkpoint", state.step);
    if (control_.rank() != 0) return;
    live.model = replica.model->state_dict();
    live.optimizer = replica.optimizer.state();
    live.still = replica.gradients.parameters();
    live.still.insert(live.still.end(), live.optimizer.begin(), live.optimizer.end());
    replica.device.synchronize();  // the copies are made on another stream
    Retention kept = retention();
    kept.mark = mark;
    write = prepare(state, live, kept);
  });
  // All have come this far: it counts, whatever becomes of them. A rank that has lost another begins no checkpoint.
  agree_on_rank_0(control_, [&] {
    background_.start(state.step, write.files);
    if (!write.from_copy) take();
  });
  totals_.held_up_seconds += watch.seconds();
}

void RunSaver::keep_as_best(const BestMark& mark) {
  const comm::Stopwatch watch;
  finish();
  agree_on_rank_0(control_, [&] {
    mark_best(checkpoints_, mark);
    remove_all_but(checkpoints_, retention(), mark.step);
  });
  totals_.held_up_seconds += watch.seconds();
}

RunSaver::Write RunSaver::prepare(const RunState& state, const LiveState& live, const Retention& retention) {
  if (!configuration_.background || !has_room_for(HostCopy::bytes_needed(live)))
    return {false, [this, retention, &state, &live] {
              return write_checkpoint(checkpoints_, state.step, files_of(state, live), retention);
            }};
  auto [contents, pending] = copy_->take(state, live);
  const auto copying = std::make_shared<std::packaged_task<void()>>([step = state.step, pending = std::move(pending)] {
    fault_point("copy", step);
    finish_copies(pending);
  });
  copied_ = copying->get_future().share();
  return {true, [copy = copy_, copying, copied = copied_, contents = std::move(contents), checkpoints = checkpoints_,
                 retention] {
            (*copying)();
            copied.get();
            fault_point("write", contents.state.step);
            return write_contents(checkpoints, contents, retention);
          }};
}

void RunSaver::wait_for_copy() {
  if (!copied_.valid()) return;
  if (copied_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    const comm::Stopwatch watch;
    const comm::LongWork copying(control_, "copying what a checkpoint holds");
    copied_.wait();
    totals_.held_up_seconds += watch.seconds();
  }
  copied_ = {};
}

bool RunSaver::has_room_for(std::size_t bytes) const {
  if (bytes <= copy_->capacity_bytes()) return true;
  const double needed = (1.0 + k_spare_share) * static_cast<double>(bytes - copy_->capacity_bytes());
  const auto available = static_cast<double>(available_host_memory_bytes());
  if (needed <= available) return true;
  events_.fallback("saving while training goes on (checkpoint.background = true)",
                   "saving while training waits: a copy takes " + gibibytes(static_cast<double>(bytes)) +
                       " of rank 0's host memory, of " + gibibytes(available) + " that are free");
  return false;
}

void RunSaver::take() {
  const SavedCheckpoint saved = background_.take();
  ++totals_.saved;
  events_.send(event::CheckpointSaved{saved.step, saved.folder.string(), saved.begin, saved.end});
}

std::exception_ptr RunSaver::look() {
  if (!background_.is_under_way() || background_.is_writing()) return failure_;
  try {
    take();
  } catch (...) {
    failure_ = std::current_exception();
  }
  return failure_;
}

void RunSaver::finish() {
  agree_on_rank_0(control_, [&] {
    if (failure_) std::rethrow_exception(failure_);
    if (!background_.is_under_way()) return;
    const comm::LongWork writing(control_, "writing a checkpoint to its end");
    take();
  });
}

}  // namespace onebatch
