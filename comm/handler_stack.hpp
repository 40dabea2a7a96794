// Room for a signal's handler on a thread whose own stack has run over: each thread needs its own.
#pragma once

#include <memory>

namespace onebatch::comm {

/// While it lives, handlers of this thread's crashes have a stack of their own.
class HandlerStack {
 public:
  HandlerStack();
  ~HandlerStack();
  HandlerStack(const HandlerStack&) = delete;
  HandlerStack& operator=(const HandlerStack&) = delete;

 private:
  std::unique_ptr<char[]> room_;
};

}  // namespace onebatch::comm
