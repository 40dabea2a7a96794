#include "trainer/checkpoint/background_save.hpp"

#include <thread>

namespace onebatch {

using Clock = std::chrono::steady_clock;

void BackgroundSave::start(std::int64_t step, std::function<std::filesystem::path()> write) {
  std::packaged_task<SavedCheckpoint()> task([step, write = std::move(write)] {
    SavedCheckpoint saved{.step = step, .folder = {}, .begin = Clock::now(), .end = {}};
    saved.folder = write();
    saved.end = Clock::now();
    return saved;
  });
  const std::scoped_lock lock(mutex_);
  save_ = task.get_future().share();
  std::thread(std::move(task)).detach();  // a disk that never answers must not keep the process from ending
}

std::shared_future<SavedCheckpoint> BackgroundSave::under_way() const {
  const std::scoped_lock lock(mutex_);
  return save_;
}

bool BackgroundSave::is_under_way() const {
  return under_way().valid();
}

bool BackgroundSave::is_writing() const {
  return !wait_for(std::chrono::seconds(0));
}

bool BackgroundSave::wait_for(std::chrono::duration<double> longest) const {
  const auto save = under_way();
  return !save.valid() || save.wait_for(longest) == std::future_status::ready;
}

SavedCheckpoint BackgroundSave::take() {
  const auto save = under_way();
  save.wait();
  {
    const std::scoped_lock lock(mutex_);
    save_ = {};
  }
  return save.get();
}

}  // namespace onebatch
