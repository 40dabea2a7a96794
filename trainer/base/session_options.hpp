// What a program gives a session beside its configuration. Free of LibTorch.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <string>

namespace onebatch {

/// Whether a process only asks for a folder, or takes it: then nobody else may write there until the process ends.
enum class FolderUse { look, take };

/// Whether it trains, or says how it would; else native code for training is not made for it.
enum class SessionFor { training, evaluation };

struct SessionOptions {
  bool strict = false;  // where something else than asked would be done, all ranks throw AgreedError instead
  std::filesystem::path run_dir = {};  // where checkpoints, metrics and samples go; made by the caller on rank 0
  bool was_complete = false;           // train, on rank 0: where nothing is left to do the run stays what it is
  std::function<void()> accepted = [] {
  };  // train: rank 0 calls it once all checks have passed, before anything is measured or written
  std::filesystem::path timeline_file = {};  // train: where rank 0 writes the trace of all ranks; empty = nowhere
  // train, where a rank is lost, in a process that was forked: why it may not write into run_dir (any more), empty
  // where it may; and what came of saving.
  std::function<std::string(FolderUse use)> why_not_write = [](FolderUse) { return std::string(); };
  std::function<void(const std::string& line)> tell_of_loss = [](const std::string&) {};
  SessionFor purpose = SessionFor::training;
  const std::atomic<int>* stop_requested = nullptr;  // set to a signal's number by the program's handler; 0 = go on
};

}  // namespace onebatch
