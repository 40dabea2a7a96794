// Where a step's work on the device waits for other ranks' numbers, and where it has made a parameter's gradient.
#pragma once

#include "trainer/batch_norm/statistics.hpp"
#include "trainer/step/step_exchange.hpp"
#include "trainer/step/step_runner.hpp"

#include <vector>

namespace onebatch {

/// An exchange.
struct Met {
  std::vector<double> sent;     // by this rank
  std::vector<double> numbers;  // by all ranks, one after the other
  at::Tensor there;             // the same on the device
};

class Meetings {
 public:
  Meetings() = default;
  Meetings(const Meetings&) = delete;
  Meetings& operator=(const Meetings&) = delete;
  virtual ~Meetings() = default;

  /// Everyone's, at `place` where there is one. Collective.
  virtual Met meet(const Packed& mine, const at::Tensor& place = {}) = 0;
  /// As FinalParameters are told, who hear it where tells() says so.
  virtual void begin_last_backwards() = 0;
  virtual void is_final(std::size_t parameter) = 0;
  [[nodiscard]] virtual bool tells() const = 0;
};

/// With the other ranks.
class LiveMeetings final : public Meetings {
 public:
  /// `told`: null where nobody is to be told.
  LiveMeetings(StepExchange& exchange, c10::Device device, const FinalParameters* told)
      : exchange_(exchange), device_(device), told_(told) {}

  Met meet(const Packed& mine, const at::Tensor& place) override;
  void begin_last_backwards() override;
  void is_final(std::size_t parameter) override;
  [[nodiscard]] bool tells() const override { return told_ != nullptr && told_->is_final; }
  /// Every rank's in the first exchange that has counts; empty before it.
  [[nodiscard]] const std::vector<std::int64_t>& counts() const { return counts_; }

 private:
  StepExchange& exchange_;
  c10::Device device_;
  const FinalParameters* told_;
  std::vector<std::int64_t> counts_;
};

/// What was met, in its order, without what lies on the device.
using Notes = std::vector<Met>;

/// Others, with what is met written down.
class NotedMeetings final : public Meetings {
 public:
  NotedMeetings(Meetings& live, Notes& notes) : live_(live), notes_(notes) {}

  Met meet(const Packed& mine, const at::Tensor& place) override;
  void begin_last_backwards() override { live_.begin_last_backwards(); }
  void is_final(std::size_t parameter) override { live_.is_final(parameter); }
  [[nodiscard]] bool tells() const override { return live_.tells(); }

 private:
  Meetings& live_;
  Notes& notes_;
};

/// The same once more: what is written down, whatever this rank sends now, and after that the others, where there are
/// any to be met. Nobody is told anything.
class RepeatedMeetings final : public Meetings {
 public:
  RepeatedMeetings(const Notes& notes, c10::Device device, Meetings* then = nullptr)
      : notes_(notes), device_(device), then_(then) {}

  /// Throws std::logic_error where neither is left.
  Met meet(const Packed& mine, const at::Tensor& place) override;
  void begin_last_backwards() override {}
  void is_final(std::size_t /*parameter*/) override {}
  [[nodiscard]] bool tells() const override { return false; }

 private:
  const Notes& notes_;
  c10::Device device_;
  Meetings* then_;
  std::size_t next_ = 0;
};

/// Of work that meets nobody.
class NoMeetings final : public Meetings {
 public:
  /// Throws std::logic_error.
  Met meet(const Packed& mine, const at::Tensor& place) override;
  void begin_last_backwards() override {}
  void is_final(std::size_t /*parameter*/) override {}
  [[nodiscard]] bool tells() const override { return false; }
};

}  // namespace onebatch
