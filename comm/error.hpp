// What is thrown when a process or a collective fails.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace onebatch::comm {

/// A failed library call or a broken invariant of the communication layer: rank, host, call, place and the library's
/// own text.
class CommError : public std::runtime_error {
 public:
  CommError(int rank, std::string_view call, std::string_view text,
            std::source_location where = std::source_location::current());
};

/// The user started the program in a way that cannot work (too many ranks, a launcher without its MPI). The message
/// says what to do instead.
class LaunchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// This machine's name, as messages show it.
std::string host_name();
/// Of this boot of this machine: containers on one kernel share it, and machines may have one name. Empty: none is
/// known.
std::string boot_id();

}  // namespace onebatch::comm
