// Between `onebatch launch` and its ranks: a folder in which each rank of this machine says that it hears signals, and
// the launcher that it wants them to stop. Before it hears them a signal would be a rank's end.
#pragma once

#include <string>

namespace onebatch::launch {

/// Of the environment that ranks are started with.
constexpr const char* k_launch_folder = "ONEBATCH_LAUNCH_FOLDER";

class LaunchFolder {
 public:
  /// A new one. Throws UserError that names TMPDIR.
  LaunchFolder();
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Ranks that begin to listen from now on know it without a signal.
  void ask_to_stop() const;
  /// How many ranks of this machine listen.
  [[nodiscard]] int listening() const;

 private:
  std::string path_;
};

/// A rank's part, when it listens: whether it is to stop. `folder` is the environment's, or null. Calls nothing but the
/// kernel, since no library has started yet.
bool tell_launcher(const char* folder);

}  // namespace onebatch::launch
