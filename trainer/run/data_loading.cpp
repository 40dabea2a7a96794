#include "trainer/run/data_loading.hpp"

#include "trainer/data/augment.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/device/precision.hpp"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace onebatch {
namespace {

constexpr std::int64_t k_first_steps = 2;  // which make what later ones find: nothing is concluded from them
constexpr std::int64_t k_look = 8;         // steps from one look to the next
constexpr std::int64_t k_most_automatic = 16;
constexpr double k_warned_share = 0.1;
constexpr double k_warned_seconds = 5e-4;  // of a step: less is nothing that anybody would notice
constexpr std::int64_t k_warned_steps = 32;

constexpr double k_mebibyte = 1024.0 * 1024.0;

std::int64_t cores_of_rank(int ranks_on_node) {
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  return std::clamp<std::int64_t>(cores / std::max(1, ranks_on_node), 1, k_most_automatic);
}

std::int64_t count_of(const std::vector<MicroBatchRun>& micro_batches) {
  std::int64_t count = 0;
  for (const MicroBatchRun& run : micro_batches) count += run.count;
  return count;
}

Loader::Read reader(const Replica& replica, std::shared_ptr<const Dataset> data) {
  return [data = std::move(data), host = replica.host_part(), type = replica.loss_type, augment = replica.augment,
          seed = replica.seed](const ReadRequest& request) {
    const TrainingData changed(*data, augment, {seed, request.epoch});
    Batch batch = host.of(read_of(changed, request.samples, type, request.length));
    return host.device.is_cpu() ? batch : batch.pinned();
  };
}

}  // namespace

DataLoading::DataLoading(const Parts& parts) : parts_(parts), most_workers_(cores_of_rank(parts.ranks_on_node)) {
  if (const auto workers = parts_.configuration.data.reading.workers; workers && *workers > 0) begin(*workers);
}

void DataLoading::begin(std::int64_t workers) {
  const c10::Device device = parts_.replica.device.device();
  const auto set_up = [device] {
    use_one_thread_here();
    if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
  };
  const double most_bytes = parts_.configuration.data.reading.read_ahead_mb * k_mebibyte;
  if (!loader_)
    loader_.emplace(reader(parts_.replica, parts_.data), LoaderOptions{static_cast<std::int64_t>(most_bytes), set_up});
  loader_->add_workers(workers);
}

void DataLoading::announce(const SampleOrder& order, std::int64_t steps_left) {
  if (!loader_) return;
  if (edition_ != parts_.book.edition() || !coming_) {
    loader_->forget();
    coming_.emplace(order);
    edition_ = parts_.book.edition();
  }
  // The step's own, and then some for each worker.
  const std::int64_t of_step = count_of(
      parts_.book.plan_of(order.next_size()).ranks.at(static_cast<std::size_t>(parts_.control.rank())).micro_batches);
  const std::int64_t ahead = std::max<std::int64_t>(2 * loader_->workers(), 1);
  // Steps in which this rank has no samples announce nothing: they are counted as well.
  const std::int64_t last =
      order.position().consumed_samples +
      std::min(steps_left, 1 + ahead) * parts_.configuration.batch.global_batch_size;  // or a little beyond
  while (coming_->position().consumed_samples < last && loader_->num_announced() < of_step + ahead) {
    if (!announce_step()) break;
  }
}

// False where the plan for it is not made, which takes all ranks.
bool DataLoading::announce_step() {
  const std::int64_t epoch = coming_->position().epoch;
  if (!parts_.book.has_plan_of(coming_->next_size())) return false;
  const std::vector<std::int64_t> batch = coming_->next();
  const int rank = parts_.control.rank();
  const Plan& plan = parts_.book.plan_of(static_cast<std::int64_t>(batch.size()));
  const auto& micro_batches = plan.ranks.at(static_cast<std::size_t>(rank)).micro_batches;
  const bool as_the_batch = parts_.replica.padding == Padding::global_batch;
  const std::int64_t length = as_the_batch ? longest_of(*parts_.data, batch) : 0;
  std::vector<ReadRequest> requests;
  for (const auto part : micro_batches_of(slice_of_rank(batch, plan, rank), micro_batches)) {
    if (!part.empty()) requests.push_back({part, epoch, as_the_batch ? length : longest_of(*parts_.data, part)});
  }
  loader_->announce(requests);
  return true;
}

void DataLoading::note(const StepTotals& totals, double step_seconds, std::int64_t step) {
  if (++steps_seen_ <= k_first_steps) return;
  recent_.add(step_seconds, totals.data_wait_seconds);
  since_change_.add(step_seconds, totals.data_wait_seconds);
  if (recent_.steps < k_look) return;
  tell_of_workers(parts_.configuration.data.reading.workers ? 0 : start_needed(), step);
  recent_ = {};
  if (since_change_.steps < k_warned_steps) return;
  warn_of_waiting(step);
  since_change_ = {};
}

// More where reading still holds training up, until all cores read. Returns how many.
std::int64_t DataLoading::start_needed() {
  const auto rank = static_cast<std::size_t>(parts_.control.rank());
  const std::int64_t had = num_workers();
  if (had == most_workers_ || parts_.book.current() == nullptr) return 0;
  const std::int64_t micro_batches = count_of(parts_.book.current()->full.ranks.at(rank).micro_batches);
  const std::int64_t more = workers_needed(recent_, rank, micro_batches, most_workers_ - had);
  if (more > 0) begin(more);
  return more;
}

// Each rank starts its own, and rank 0 speaks. Collective.
void DataLoading::tell_of_workers(std::int64_t started, std::int64_t step) {
  const RankWorkers own{num_workers(), started, most_workers_};
  ranks_.resize(static_cast<std::size_t>(parts_.control.size()));
  parts_.control.all_gather(&own, ranks_.data(), sizeof(own));
  const std::string text = started_workers_text(recent_, ranks_, step);
  if (text.empty()) return;
  since_change_ = {};
  parts_.events.info(text);
}

void DataLoading::warn_of_waiting(std::int64_t step) {
  if (warned_) return;
  const auto most =
      static_cast<std::size_t>(std::ranges::max_element(since_change_.waits) - since_change_.waits.begin());
  const double of_step = since_change_.waits[most] / static_cast<double>(since_change_.steps);
  if (since_change_.of(most) <= k_warned_share || of_step < k_warned_seconds) return;
  warned_ = true;
  parts_.events.warn(
      fmt::format("rank {} waits for data: {:.1f} ms of each step, {:.0f} % of its time (steps {} to {}). {}", most,
                  of_step * 1e3, 100.0 * since_change_.of(most), step - since_change_.steps + 1, step, advice(most)));
}

std::string DataLoading::advice(std::size_t rank) const {
  const std::int64_t workers = ranks_.at(rank).workers;
  const std::int64_t most = ranks_.at(rank).most;
  if (workers == 0 && parts_.configuration.data.reading.workers)
    return "The thread that trains reads them: write data.workers = \"auto\", or how many threads are to";
  if (workers < most) return fmt::format("Write data.workers = {} or more, not {}", most, workers);
  return fmt::format(
      "Its {} data worker{} not keep up: give each rank more cores, write larger data.workers where reading is waiting "
      "for a disk, or keep the data smaller or nearer",
      workers, workers == 1 ? " does" : "s do");
}

}  // namespace onebatch
