// Pieces of HTML, and numbers as people read them.
#pragma once

#include "comm/visible_text.hpp"
#include "launch/count_text.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace onebatch::launch::report {

/// As text or as the value of an attribute.
using comm::markup_text;

/// A JSON document that stands in a page: nothing in it ends the element that holds it.
std::string json_in_html(std::string_view json);

/// Four digits that count: "0.04312", "1.234e-05", "12,345".
std::string number_text(double value);
/// "12.3 ms", "2.05 s", "1 h 5 min".
std::string seconds_text(double seconds);
/// "182 MiB", "1.25 GiB".
std::string bytes_text(double bytes);
/// 0.1234 as "12.3 %".
std::string percent_text(double part);
/// In UTC: "2026-02-28 09:30:00".
std::string time_text(double seconds_since_1970);

/// A number with what it is exactly, for programs that read the page.
std::string exact(double value, std::string_view text);

/// A cell of a table's body.
std::string cell(std::string_view html);
std::string number_cell(std::string_view html);
std::string head_cell(std::string_view html);
/// A table that is moved sideways where it is wider than the page.
std::string table(std::string_view caption, std::string_view head, std::string_view rows);
/// `id` is for links; empty: none.
std::string section(std::string_view id, std::string_view title, std::string_view html);

}  // namespace onebatch::launch::report
