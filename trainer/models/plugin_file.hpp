// The file of a plugin, looked at without loading it. No LibTorch here.
#pragma once

#include "trainer/models/plugin_stamp.hpp"

#include <optional>
#include <string>

namespace onebatch {

/// The first whole stamp among these bytes; none where there is none.
std::optional<PluginStamp> find_plugin_stamp(std::string_view bytes);

/// Why a plugin of that stamp cannot be called by a program of this one, and what to do; empty: it can.
std::string why_not_this_program(const PluginStamp& plugin, const PluginStamp& program);

/// Throws UserError, which begins with `named`, where there is no file, or a shared object that is cut, without a
/// stamp, or of another one than `program`. What is no shared object at all is left to the loader's words.
void check_plugin_file(const std::string& file, const std::string& named, const PluginStamp& program);

}  // namespace onebatch
