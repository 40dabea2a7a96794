// How the page looks, and the script that tells the numbers under a pointer.
#pragma once

#include <string_view>

namespace onebatch::launch::report {

extern const std::string_view k_style;
extern const std::string_view k_script;
/// The one script that the page lets run, by its checksum: "sha256-…" of k_script.
extern const std::string_view k_script_hash;

}  // namespace onebatch::launch::report
