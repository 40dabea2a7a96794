// What LibTorch and native code write to the standard error of what they throw: stack traces, also of memory that a
// trial was to run out of.
#pragma once

#include <sstream>
#include <streambuf>

namespace onebatch {

/// While it lives nothing of it is seen. Afterwards what was written does, unless it was dropped. One at a time.
class NativeWords {
 public:
  NativeWords();
  ~NativeWords();
  NativeWords(const NativeWords&) = delete;
  NativeWords& operator=(const NativeWords&) = delete;

  void drop() { words_.str(""); }

 private:
  std::ostringstream words_;
  std::streambuf* before_;
};

}  // namespace onebatch
