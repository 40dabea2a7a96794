#include "trainer/data/loader.hpp"

#include "comm/handler_stack.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/memory_budget.hpp"

#include <fmt/format.h>

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

namespace onebatch {
namespace {

constexpr std::chrono::seconds k_longest_farewell{5};

enum class Stage { announced, under_way, done };

struct Item {
  std::vector<std::int64_t> samples;
  std::int64_t epoch = 0;
  std::int64_t length = 0;
  Stage stage = Stage::announced;
  std::int64_t bytes = 0;  // that count for it
  Batch batch;
  std::exception_ptr failure;

  [[nodiscard]] ReadRequest request() const { return {samples, epoch, length}; }
  [[nodiscard]] bool is(const ReadRequest& other) const {
    return epoch == other.epoch && length == other.length && std::ranges::equal(samples, other.samples);
  }
  // What its size is a multiple of.
  [[nodiscard]] double units() const {
    return static_cast<double>(samples.size()) * static_cast<double>(std::max<std::int64_t>(length, 1));
  }
};

std::int64_t bytes_of(const Batch& batch) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : batch.tensors()) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

// Signals are for the threads that act on them; a crash is its thread's own.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&all, own);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

class Loader::Ring {
 public:
  Ring(Read read, const LoaderOptions& options) : read_(std::move(read)), options_(options) {}

  void serve(std::size_t number) {
    pthread_setname_np(pthread_self(), fmt::format("data worker {}", number % 1000).c_str());
    const comm::HandlerStack room;
    const UncountedMemory of_the_host;
    if (options_.set_up) options_.set_up();
    std::unique_lock lock(mutex_);
    for (;;) {
      std::shared_ptr<Item> next;
      changed_.wait(lock, [&] { return ending_ || (next = next_to_read()) != nullptr; });
      if (ending_) break;
      read_unlocked(lock, *next);
    }
    --living_;
    changed_.notify_all();
  }

  void note_worker() {
    const std::scoped_lock lock(mutex_);
    ++living_;
  }

  // False where some are still reading.
  bool end() {
    std::unique_lock lock(mutex_);
    ending_ = true;
    items_.clear();
    changed_.notify_all();
    return changed_.wait_for(lock, k_longest_farewell, [this] { return living_ == 0; });
  }

  void announce(std::span<const ReadRequest> coming) {
    {
      const std::scoped_lock lock(mutex_);
      for (const ReadRequest& request : coming) {
        items_.push_back(std::make_shared<Item>());
        items_.back()->samples.assign(request.samples.begin(), request.samples.end());
        items_.back()->epoch = request.epoch;
        items_.back()->length = request.length;
      }
    }
    changed_.notify_all();
  }

  void forget() {
    const std::scoped_lock lock(mutex_);
    while (!items_.empty()) drop_first();
  }

  [[nodiscard]] std::int64_t num_announced() const {
    const std::scoped_lock lock(mutex_);
    return static_cast<std::int64_t>(items_.size());
  }

  std::optional<Batch> take(const ReadRequest& request) {
    std::unique_lock lock(mutex_);
    const auto found = std::ranges::find_if(items_, [&](const auto& item) { return item->is(request); });
    if (found == items_.end()) return std::nullopt;
    const std::shared_ptr<Item> item = *found;
    while (items_.front() != item) drop_first();
    if (item->stage == Stage::announced) {
      drop_first();
      return std::nullopt;
    }
    changed_.wait(lock, [&] { return item->stage == Stage::done; });
    drop_first();
    lock.unlock();
    changed_.notify_all();
    if (!item->failure) return std::move(item->batch);
    return after_failure(item->failure);
  }

  void set_paused(bool paused) {
    std::unique_lock lock(mutex_);
    pauses_ += paused ? 1 : -1;
    changed_.notify_all();
    if (paused) changed_.wait(lock, [this] { return under_way_ == 0; });
  }

  [[nodiscard]] std::int64_t most_bytes_held() const {
    const std::scoped_lock lock(mutex_);
    return most_held_;
  }

 private:
  // Where the host had no memory, the caller's own attempt is the one that counts.
  static std::optional<Batch> after_failure(const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::bad_alloc&) {
    } catch (const c10::OutOfMemoryError&) {
    } catch (const DoesNotFitError&) {  // memory that a GPU copies from
    }
    return std::nullopt;
  }

  // Null where nothing is to be read, or there is no room for it. How large a micro-batch will be is known from the
  // first: until then it is alone.
  std::shared_ptr<Item> next_to_read() {
    if (pauses_ > 0) return nullptr;
    const auto found = std::ranges::find(items_, Stage::announced, [](const auto& item) { return item->stage; });
    if (found == items_.end()) return nullptr;
    const auto bytes = static_cast<std::int64_t>((*found)->units() * bytes_per_unit_);
    if (held_ > 0 && (bytes_per_unit_ == 0.0 || held_ + bytes > options_.most_bytes)) return nullptr;
    if (bytes_per_unit_ == 0.0 && under_way_ > 0) return nullptr;
    count(**found, bytes);
    (*found)->stage = Stage::under_way;
    ++under_way_;
    return *found;
  }

  void read_unlocked(std::unique_lock<std::mutex>& lock, Item& item) {
    lock.unlock();
    Batch batch;
    std::exception_ptr failure;
    try {
      batch = read_(item.request());
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    --under_way_;
    item.stage = Stage::done;
    if (std::ranges::find(items_, &item, &std::shared_ptr<Item>::get) != items_.end()) {
      const std::int64_t bytes = failure ? 0 : bytes_of(batch);
      bytes_per_unit_ = std::max(bytes_per_unit_, static_cast<double>(bytes) / std::max(1.0, item.units()));
      count(item, bytes);
      item.batch = std::move(batch);
      item.failure = failure;
    } else {
      count(item, 0);
    }
    changed_.notify_all();
  }

  // One that is under way counts until it is done.
  void drop_first() {
    if (items_.front()->stage != Stage::under_way) count(*items_.front(), 0);
    items_.pop_front();
  }

  void count(Item& item, std::int64_t bytes) {
    held_ += bytes - item.bytes;
    item.bytes = bytes;
    most_held_ = std::max(most_held_, held_);
  }

  const Read read_;
  const LoaderOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Item>> items_;
  double bytes_per_unit_ = 0.0;  // the most that was seen
  std::int64_t held_ = 0;
  std::int64_t most_held_ = 0;
  std::int64_t under_way_ = 0;
  std::int64_t living_ = 0;  // workers
  int pauses_ = 0;           // that live
  bool ending_ = false;
};

Loader::Loader(Read read, const LoaderOptions& options) : ring_(std::make_shared<Ring>(std::move(read), options)) {}

Loader::~Loader() {
  const bool all_have_left = ring_->end();
  for (std::thread& worker : workers_) {
    if (all_have_left)
      worker.join();
    else
      worker.detach();
  }
}

void Loader::add_workers(std::int64_t count) {
  const NoSignals inherited;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::size_t number = workers_.size();
    workers_.emplace_back([ring = ring_, number] { ring->serve(number); });
    ring_->note_worker();
  }
}

std::int64_t Loader::workers() const {
  return static_cast<std::int64_t>(workers_.size());
}

void Loader::announce(std::span<const ReadRequest> coming) {
  ring_->announce(coming);
}

void Loader::forget() {
  ring_->forget();
}

std::int64_t Loader::num_announced() const {
  return ring_->num_announced();
}

std::optional<Batch> Loader::take(const ReadRequest& request) {
  return ring_->take(request);
}

std::int64_t Loader::most_bytes_held() const {
  return ring_->most_bytes_held();
}

Loader::Paused::Paused(Loader* loader) : loader_(loader) {
  if (loader_ != nullptr) loader_->ring_->set_paused(true);
}

Loader::Paused::~Paused() {
  if (loader_ != nullptr) loader_->ring_->set_paused(false);
}

}  // namespace onebatch
