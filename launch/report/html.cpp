#include "launch/report/html.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <array>
#include <cmath>

namespace onebatch::launch::report {

std::string json_in_html(std::string_view json) {
  std::string out;
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

std::string number_text(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "none" : (value > 0 ? "infinity" : "-infinity");
  const double size = std::abs(value);
  if (size >= 1e15) return fmt::format("{:.3e}", value);
  if (value == std::floor(value) || size >= 9999.5) return count_text(std::llround(value));
  return fmt::format("{:.4g}", value);
}

std::string seconds_text(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0.0) return "0";
  if (size < 1e-3) return fmt::format("{:.3g} µs", seconds * 1e6);
  if (size < 0.9995) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (size < 99.95) return fmt::format("{:.3g} s", seconds);
  const auto whole = static_cast<std::int64_t>(std::min(size, 1e15) + 0.5);
  const char* sign = seconds < 0 ? "-" : "";
  if (whole < 3600) return fmt::format("{}{} min {} s", sign, whole / 60, whole % 60);
  return fmt::format("{}{} h {} min", sign, count_text(whole / 3600), whole / 60 % 60);
}

std::string bytes_text(double bytes) {
  constexpr std::array<const char*, 4> k_units = {"bytes", "KiB", "MiB", "GiB"};
  std::size_t unit = 0;
  while (unit + 1 < k_units.size() && std::abs(bytes) >= 1023.5) {
    bytes /= 1024.0;
    ++unit;
  }
  return fmt::format("{} {}", bytes >= 99.95 ? count_text(std::llround(bytes)) : fmt::format("{:.3g}", bytes),
                     k_units[unit]);
}

std::string percent_text(double part) {
  const double percent = 100.0 * part;
  return std::abs(percent) >= 99.95 ? fmt::format("{:.0f} %", percent) : fmt::format("{:.1f} %", percent);
}

std::string time_text(double seconds_since_1970) {
  if (!(seconds_since_1970 > 0.0 && seconds_since_1970 < 253402300800.0)) return "";  // to the year 9999
  return fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::gmtime(static_cast<std::time_t>(seconds_since_1970)));
}

std::string exact(double value, std::string_view text) {
  return fmt::format("<data value=\"{}\">{}</data>", value, markup_text(text));
}

std::string cell(std::string_view html) {
  return fmt::format("<td>{}</td>", html);
}

std::string number_cell(std::string_view html) {
  return fmt::format("<td class=\"n\">{}</td>", html);
}

std::string head_cell(std::string_view html) {
  return fmt::format("<th scope=\"col\">{}</th>", html);
}

std::string table(std::string_view caption, std::string_view head, std::string_view rows) {
  return fmt::format(
      "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><caption>{}</caption>{}<tbody>\n{}"
      "</tbody></table></div>\n",
      caption, caption, head.empty() ? "" : fmt::format("<thead><tr>{}</tr></thead>", head), rows);
}

std::string section(std::string_view id, std::string_view title, std::string_view html) {
  return fmt::format("<section{}>\n<h2>{}</h2>\n{}</section>\n", id.empty() ? "" : fmt::format(" id=\"{}\"", id), title,
                     html);
}

}  // namespace onebatch::launch::report
