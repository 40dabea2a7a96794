// The collectives inside a step that shares BatchNorm's statistics, none of which may wait for a rank that has failed.
#pragma once

#include "comm/communicator.hpp"

#include <functional>
#include <stdexcept>
#include <vector>

namespace onebatch {

/// Another rank failed in its micro-batches of this step: what happened to it travels in the step's own reduction.
class StepAbandoned : public std::runtime_error {
 public:
  StepAbandoned() : std::runtime_error("another rank could not finish its micro-batches") {}
};

/// A sequence of exchanges, known from the start, that every rank makes in the same order, each with a flag that says
/// whether a rank is still well. Where one is not, all throw StepAbandoned at that exchange and make no further.
class StepExchange {
 public:
  /// `before` and `after` surround each exchange: the time between them is not this rank's own.
  StepExchange(comm::Communicator& ranks, std::function<void()> before, std::function<void()> after);

  /// How many numbers the exchanges to come will have.
  void expect(const std::vector<std::size_t>& counts);
  [[nodiscard]] bool is_alone() const { return ranks_.size() == 1; }
  /// Everyone's numbers, one rank's after the other. Collective.
  std::vector<double> gather(const std::vector<double>& mine);
  /// For a rank that has failed: tells the others in the next exchange, if there is one. Collective.
  void report_failure();

 private:
  std::vector<double> all(std::vector<double> mine, double failed);

  comm::Communicator& ranks_;
  std::function<void()> before_;
  std::function<void()> after_;
  std::vector<std::size_t> expected_;
  std::size_t next_ = 0;
};

}  // namespace onebatch
