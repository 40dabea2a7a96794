// Keys whose values are of a form of their own.
#pragma once

#include "launch/key_types.hpp"

namespace onebatch::launch {

ConfigKey deterministic_key();
ConfigKey loss_scale_key();
ConfigKey micro_batch_key();
/// So many numbers; 0: any.
ConfigKey numbers_key(std::string path, std::size_t count, Range range, std::function<std::vector<double>(const Configuration&)> get,
                      std::function<void(Configuration&, const std::vector<double>&)> set);
ConfigKey resume_key();
ConfigKey groups_key();
ConfigKey overlap_key();
/// The name that others give to batch_norm.mode = "sync".
ConfigKey sync_key(const std::string& path);
ConfigKey recompute_key();

}  // namespace onebatch::launch
