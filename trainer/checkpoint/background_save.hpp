// Writing a checkpoint in a thread of its own while training goes on. No LibTorch here.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <future>
#include <mutex>

namespace onebatch {

struct SavedCheckpoint {
  std::int64_t step = 0;
  std::filesystem::path folder;
  std::chrono::steady_clock::time_point begin;  // of writing
  std::chrono::steady_clock::time_point end;
};

/// One save at a time. What it threw is kept until it is taken. Any thread may ask whether it runs.
class BackgroundSave {
 public:
  /// Begins to write in a thread; `write` returns the folder, and owns what it uses: the thread may outlive this
  /// object, if only as long as the process. Nothing may be under way, nor left to be taken.
  void start(std::int64_t step, std::function<std::filesystem::path()> write);
  /// Started and not taken yet.
  [[nodiscard]] bool is_under_way() const;
  /// Still writing.
  [[nodiscard]] bool is_writing() const;
  /// Until it has ended, but no longer than that. False where it has not.
  bool wait_for(std::chrono::duration<double> longest) const;
  /// Waits for its end. Throws what it threw. Only where one is under way.
  SavedCheckpoint take();

 private:
  [[nodiscard]] std::shared_future<SavedCheckpoint> under_way() const;

  mutable std::mutex mutex_;
  std::shared_future<SavedCheckpoint> save_;
};

}  // namespace onebatch
