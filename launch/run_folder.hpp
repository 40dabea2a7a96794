// The folder that holds everything about a run. Never overwritten in silence.
#pragma once

#include "trainer/configuration.hpp"

#include <filesystem>
#include <string>

namespace onebatch::launch {

struct RunFolder {
  std::filesystem::path path;
  std::string said;  // what a user should know: another name was taken, a run goes on; may be empty
};

/// Makes output_dir/name, or chooses it again where its run has saved a checkpoint and checkpoint.resume allows; else the next free name-2,
/// name-3, … Throws UserError where the folder is somebody else's.
RunFolder make_run_folder(const Configuration& configuration, const std::string& default_name);

}  // namespace onebatch::launch
