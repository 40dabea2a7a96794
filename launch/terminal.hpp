// What a person sees while the program runs: a progress bar on a terminal, plain lines elsewhere.
#pragma once

#include "trainer/trainer.hpp"

#include <chrono>
#include <set>

namespace onebatch::launch {

struct TerminalOptions {
  bool quiet = false;
  bool strict = false;
  std::int64_t every_steps = 10;
};

class Terminal : public Observer {
 public:
  explicit Terminal(TerminalOptions options);
  ~Terminal() override;

  void info(std::string_view line) override;
  void warn(std::string_view line) override;
  /// Says it once. Throws UserError under --strict.
  void fallback(std::string_view asked, std::string_view done) override;
  void profile_measured(const ClusterProfile& profile) override;
  void plan_made(const EpochPlan& plan) override;
  void training_begins(std::int64_t first_step, std::int64_t last_step) override;
  void step_done(const StepRecord& record) override;
  void validated(std::int64_t epoch, const EvaluationResult& result) override;
  void checkpoint_saved(std::int64_t step, std::string_view path) override;

 private:
  void print(std::string_view text);
  void draw_bar(const StepRecord& record);
  void end_bar();

  TerminalOptions options_;
  bool on_terminal_;
  bool bar_drawn_ = false;
  std::set<std::string> said_;
  std::int64_t first_step_ = 0;
  std::int64_t last_step_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point last_drawn_;
};

/// The profile as a table, a line per rank.
std::string profile_table(const ClusterProfile& profile);
std::string verify_text(const VerifyReport& report);

}  // namespace onebatch::launch
