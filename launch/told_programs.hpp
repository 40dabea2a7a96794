// [[log.sinks]]: programs that are told of a run's events.
#pragma once

#include "trainer/base/configuration.hpp"

#include <string>
#include <vector>

namespace onebatch::launch {

/// Throws UserError where a program is not there, or a script that it is given: before anything begins.
void check_told_programs(const std::vector<LogSink>& sinks);

/// What each is called: the file that its program is given, else the program, without folder and ending; "-2" after the
/// second of a name.
std::vector<std::string> names_of(const std::vector<LogSink>& sinks);

}  // namespace onebatch::launch
