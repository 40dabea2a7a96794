// The terminal, and the documents of a run's folder.
#pragma once

#include "launch/terminal.hpp"

#include <filesystem>

namespace onebatch::launch {

class RunObserver final : public Terminal {
 public:
  /// Without a folder nothing is written.
  RunObserver(TerminalOptions options, std::filesystem::path run_dir);

  void profile_measured(const ClusterProfile& profile) override;
  void plan_made(const EpochPlan& plan) override;

 private:
  void save(const char* name, const std::string& text) const;

  std::filesystem::path run_dir_;
  std::optional<Plan> before_;
};

}  // namespace onebatch::launch
