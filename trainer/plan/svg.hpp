// What pictures are made of.
#pragma once

#include <string>

namespace onebatch::svg {

/// As XML; what it forbids (control characters, what is no UTF-8) is shown as "\x1b" and the like.
std::string escaped(const std::string& text);
/// `anchor`: start, middle or end; `style`: more attributes.
std::string label(double x, double y, const char* anchor, const std::string& text, const char* style = "");
/// 900 wide.
std::string document(double height, const std::string& body);

}  // namespace onebatch::svg
