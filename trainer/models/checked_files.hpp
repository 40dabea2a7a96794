// Files that were checked from end to end. No LibTorch here.
#pragma once

#include <functional>
#include <string>

namespace onebatch {

/// Calls `check`, unless this process has done so for this file and the file is the one that it was then: the same
/// place on the same device, size and times. What `check` throws is passed on and the file counts as not checked.
/// Thread-safe.
void check_once(const std::string& file, const std::function<void()>& check);

}  // namespace onebatch
