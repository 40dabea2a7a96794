// What another node's watchdog answers: lines of reports.
#include "comm/status_board.hpp"
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>

namespace onebatch::fuzz {
namespace {

using comm::RankReport;

std::string lines_of(const std::vector<RankReport>& reports) {
  std::string lines;
  for (const RankReport& report : reports) lines += report.to_line();
  return lines;
}

void run(std::string_view input) {
  const auto reports = RankReport::from_lines(input);
  const std::string lines = lines_of(reports);
  const bool printable = std::ranges::all_of(
      lines, [](char c) { return c == '\t' || c == '\n' || static_cast<unsigned char>(c) >= 0x20; });
  check(printable, "no report steers a terminal");
  const auto again = RankReport::from_lines(lines);
  check(again.size() == reports.size() && lines_of(again) == lines,
        "what was written is read alike: " + lines + "\n" + lines_of(again));
}

const Registered k_registered("status", run);

}  // namespace
}  // namespace onebatch::fuzz
