#include "trainer/run/skipped_files.hpp"

#include <fmt/format.h>

#include <sstream>

namespace onebatch {

void name_skipped_files(const Dataset& data, std::set<std::string>& named, comm::Communicator& control,
                        EventStream& events) {
  std::string own;
  for (const std::string& complaint : data.take_complaints()) own += complaint + '\n';
  for (const std::string& complaints : comm::all_gather_text(control, own)) {
    std::istringstream lines(complaints);
    for (std::string line; std::getline(lines, line);) {
      if (named.insert(line).second) events.warn(fmt::format(R"({}: it is skipped (data.on_broken = "skip"))", line));
    }
  }
}

void count_skipped_files(const std::set<std::string>& named, std::string_view what_became, EventStream& events) {
  if (named.empty()) return;
  events.warn(
      fmt::format("{} of the data's files could not be read and {}: they are named above", named.size(), what_became));
}

}  // namespace onebatch
