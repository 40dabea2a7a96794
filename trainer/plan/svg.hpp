// What pictures are made of.
#pragma once

#include <array>
#include <string>

namespace onebatch::svg {

inline constexpr std::array<const char*, 8> k_colours = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                                         "#66ccee", "#aa3377", "#bb5566", "#777777"};

/// Of a scale up to `most` that ends at a round number.
double nice_step(double most);

/// `anchor`: start, middle or end; `style`: more attributes.
std::string label(double x, double y, const char* anchor, const std::string& text, const char* style = "");
/// 900 wide.
std::string document(double height, const std::string& body);

}  // namespace onebatch::svg
