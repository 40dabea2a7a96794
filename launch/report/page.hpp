// A run, or several beside each other, as one page that needs nothing else: no network, and no script to be read.
#pragma once

#include "launch/report/run_record.hpp"

#include <string>
#include <vector>

namespace onebatch::launch::report {

/// Any of the pages: its title, what it is in a sentence, and its sections.
std::string page_html(const std::string& title, const std::string& about, const std::string& sections);
/// The HTML document. `runs` is not empty; `drawn_at`: when, in words.
std::string report_page(const std::vector<RunRecord>& runs, const std::string& drawn_at);

}  // namespace onebatch::launch::report
