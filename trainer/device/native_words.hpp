// What LibTorch and native code write to the standard error of what they throw: stack traces, also of memory that a
// trial was to run out of.
#pragma once

#include <string>

namespace onebatch {

/// While it lives nothing of it is seen that its own thread writes. Afterwards what was written is, unless it was
/// dropped, before or afterwards. The innermost of a thread hears them.
class NativeWords {
 public:
  NativeWords();
  ~NativeWords();
  NativeWords(const NativeWords&) = delete;
  NativeWords& operator=(const NativeWords&) = delete;

  void drop() { is_dropped_ = true; }
  /// Likewise of the one that lives on this thread, if any does.
  static void drop_current();

 private:
  NativeWords* before_;
  bool is_dropped_ = false;
  std::string words_;
};

}  // namespace onebatch
