// Threads that read the coming micro-batches of training while this one is computed. Knows no model and no device: what
// is read is a function's to say.
#pragma once

#include "trainer/data/dataset.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace onebatch {

/// A micro-batch to be read. Two that are equal hold the same numbers, bit for bit.
struct ReadRequest {
  std::span<const std::int64_t> samples;
  std::int64_t epoch = 0;   // whose random changes of samples are drawn
  std::int64_t length = 0;  // that sequences are padded to; 0: they are none
};

struct LoaderOptions {
  std::int64_t most_bytes = std::int64_t{256} << 20;  // of all that is read and not yet taken
  /// Called by each worker on its thread as it begins.
  std::function<void()> set_up = {};
};

/// A ring of micro-batches in the order in which they are announced. All is called by one thread, which trains.
class Loader {
 public:
  /// What it needs lives as long as it does: a worker that a disk does not answer may outlive the loader.
  using Read = std::function<Batch(const ReadRequest&)>;

  /// Without workers as yet.
  Loader(Read read, const LoaderOptions& options);
  /// Waits for reads that are under way, for some seconds: a disk that never answers must not keep the process from
  /// ending.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// So many more threads.
  void add_workers(std::int64_t count);
  [[nodiscard]] std::int64_t workers() const;

  /// These come after what was announced. They are copied.
  void announce(std::span<const ReadRequest> coming);
  /// What was announced does not come.
  void forget();
  /// That were announced and not taken.
  [[nodiscard]] std::int64_t num_announced() const;

  /// What was read for an equal request, waiting for it where it is under way; none where it was not announced, no
  /// worker has come to it, or there was no memory: the caller reads it then. What was announced before it does not
  /// come any more. Throws what reading has thrown.
  std::optional<Batch> take(const ReadRequest& request);

  /// While one lives nothing is read: for times that are measured.
  class Paused {
   public:
    /// Waits for reads that are under way. `loader` may be none.
    explicit Paused(Loader* loader);
    ~Paused();
    Paused(const Paused&) = delete;
    Paused& operator=(const Paused&) = delete;

   private:
    Loader* loader_;
  };

  /// The most bytes that lay read and not taken at any time.
  [[nodiscard]] std::int64_t most_bytes_held() const;

 private:
  class Ring;
  std::shared_ptr<Ring> ring_;  // its workers' too
  std::vector<std::thread> workers_;
};

}  // namespace onebatch
