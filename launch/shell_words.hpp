// Words as a shell takes them.
#pragma once

#include <string>

namespace onebatch::launch {

std::string quoted_for_shell(const std::string& word);

}  // namespace onebatch::launch
