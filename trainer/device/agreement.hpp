// Work that may fail on one rank alone, done so that no rank waits for one that has failed. See Note [Nobody waits for
// the dead].
#pragma once

#include "comm/communicator.hpp"
#include "trainer/base/error.hpp"

#include <exception>
#include <functional>
#include <string>

namespace onebatch {

/// Runs `work` on every rank. Where it threw on any, every rank throws AgreedError with the first failing rank's words
/// and exit code. `work` itself must not be collective. Collective.
void agree(comm::Communicator& control, const std::function<void()>& work);

/// The same for work that rank 0 does for all. Collective.
void agree_on_rank_0(comm::Communicator& control, const std::function<void()>& work);

/// An error's own words, without LibTorch's stack trace, and what to do about it where a device is out of memory.
std::string words_of(const std::exception& error);

/// With which code a process ends that ends of this error.
ExitCode exit_code_of(const std::exception& error);

/// Something that must be the same on every rank.
struct AgreedItem {
  std::string name;
  std::string value;
};

/// Throws AgreedError on every rank, with the user's exit code, where a rank's items are not rank 0's: it names the
/// first that differs, both values and the two ranks. Collective.
void check_same(comm::Communicator& control, const std::vector<AgreedItem>& items);

}  // namespace onebatch
