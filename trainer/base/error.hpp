// The kinds of failure that have an exit code of their own.
#pragma once

#include <stdexcept>
#include <string>

namespace onebatch {

/// The user's mistake: configuration, data, arguments. The message says what to write instead. Exit code 2.
class UserError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Not even the least micro-batch fits on this rank's device, or the batch on all devices. Exit code 3.
class DoesNotFitError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class ExitCode : int {
  done = 0,
  failed = 1,
  user_error = 2,
  does_not_fit = 3,
  peer_failed = 4,
  verification_failed = 5,
  stopped_by_signal = 75
};

/// A failure that every rank throws together, after they have agreed on it: rank 0 says it, all leave MPI in order and
/// exit with `code`.
class AgreedError : public std::runtime_error {
 public:
  AgreedError(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

}  // namespace onebatch
