// Which computation an exported program is, whatever its weights, where it was exported and by which PyTorch. No
// LibTorch here.
#pragma once

#include "trainer/models/exported_archive.hpp"

#include <string>

namespace onebatch {

/// Whether an operator only checks what was true when the program was exported: it is not run.
bool is_check_of_export(const std::string& target);

/// Of `graph_module` and of the constants in `archive`, bit for bit. Left out are devices, which the run chooses, names
/// of calls, and what was checked. Checkpoints hold it: with other rules all of them are another program's.
std::string program_digest(const ExportedArchive& archive, const nlohmann::json& graph_module);

}  // namespace onebatch
