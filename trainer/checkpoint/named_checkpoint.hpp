// A checkpoint as a user names it: by its own folder, or by its run's. No LibTorch here.
#pragma once

#include "trainer/checkpoint/checkpoint_folder.hpp"

namespace onebatch {

/// `path` is a step-N folder, which is checked, or a run's folder, or its folder of checkpoints, of which the newest
/// whole one is taken. None: no checkpoint is there. Throws UserError where none that is there is whole.
std::optional<FoundCheckpoint> find_named_checkpoint(const std::filesystem::path& path);

/// What to say where there is none.
std::string no_checkpoint_at(const std::filesystem::path& path);

}  // namespace onebatch
