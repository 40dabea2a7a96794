#include "launch/report/page.hpp"

#include "launch/report/bars.hpp"
#include "launch/report/html.hpp"
#include "launch/report/sections.hpp"
#include "launch/report/style.hpp"

#include <fmt/format.h>

namespace onebatch::launch::report {
namespace {

std::string title_of(const Runs& runs) {
  std::string title;
  for (std::size_t i = 0; i < runs.size(); ++i)
    title += fmt::format("{}{}{}", i > 0 ? ", " : "", runs.size() > 1 ? letter_of(i) + " " : "", runs[i].name);
  return title;
}

std::string navigation(const std::string& sections) {
  std::string links;
  constexpr std::string_view k_begin = "<section id=\"";
  for (std::size_t at = sections.find(k_begin); at != sections.npos; at = sections.find(k_begin, at + 1)) {
    const std::size_t id = at + k_begin.size();
    const std::size_t title = sections.find("<h2>", id) + 4;
    links += fmt::format("<a href=\"#{}\">{}</a>\n", sections.substr(id, sections.find('"', id) - id),
                         sections.substr(title, sections.find("</h2>", title) - title));
  }
  return links;
}

}  // namespace

std::string letter_of(std::size_t run) {
  return run < 26 ? std::string(1, static_cast<char>('A' + run)) : fmt::format("{}", run + 1);
}

std::string heading_of(const Runs& runs, std::size_t run) {
  return runs.size() == 1 ? "" : fmt::format("<h3>{} {}</h3>\n", letter_of(run), markup_text(runs[run].name));
}

std::string ranks_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += fmt::format("\u2013{}", ranks[end - 1]);
    i = end;
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", text);
}

std::string device_of(const RunRecord& run, std::size_t rank) {
  if (run.profile && rank < run.profile->ranks.size()) return run.profile->ranks[rank].device;
  if (run.plan && rank < run.plan->full.ranks.size()) return run.plan->full.ranks[rank].device;
  return {};
}

std::string page_html(const std::string& title, const std::string& about, const std::string& sections) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\">\n<meta http-equiv=\"Content-Security-Policy\" "
      "content=\"default-src "
      "'none'; style-src 'unsafe-inline'; script-src '{}'\">\n<title>{}: "
      "onebatch</title>\n<style>{}</style>\n</head>\n<body>\n"
      "{}<header><h1>{}</h1>\n<p>{}</p></header>\n<nav "
      "aria-label=\"Parts of "
      "this page\">\n{}</nav>\n<main>\n{}</main>\n<script>{}</script>\n</body>\n</html>\n",
      k_script_hash, markup_text(title), k_style, fill_patterns(), markup_text(title), markup_text(about),
      navigation(sections), sections, k_script);
}

std::string report_page(const Runs& runs, const std::string& drawn_at) {
  const std::string sections = summary_section(runs) + curves_section(runs) + plan_section(runs) +
                               prediction_section(runs) + time_section(runs) + memory_section(runs) +
                               events_section(runs) + settings_section(runs) + repeat_section(runs);
  const std::string about =
      fmt::format("{} of onebatch, drawn {} from what {} held then.", runs.size() == 1 ? "A run" : "Runs", drawn_at,
                  runs.size() == 1 ? "its folder" : "their folders");
  return page_html(title_of(runs), about, sections);
}

}  // namespace onebatch::launch::report
