// What a plugin was built for, as it lies in its file: it is read there and compared before the file is loaded, for
// loading runs code. No LibTorch here.
#pragma once

#include "trainer/base/version.hpp"

#include <array>
#include <cstddef>
#include <string_view>

namespace onebatch {

/// Texts, each ended by a 0.
struct PluginStamp {
  std::array<char, 24> begin;     // k_begin
  std::array<char, 8> interface;  // of PluginRequest and CallableModule
  std::array<char, 32> onebatch;  // versions
  std::array<char, 32> libtorch;
  std::array<char, 96> standard_library;  // what decides how its types lie in memory
  std::array<char, 8> end;                // k_end
};

/// Only used where a stamp is made while compiling, so that they lie in a file nowhere else.
struct PluginStampMarks {
  static constexpr std::string_view k_begin = "onebatch plugin stamp:";
  static constexpr std::string_view k_end = ":stamp";
};

/// What is to be changed wherever a plugin of before could no longer be called.
inline constexpr std::string_view k_plugin_interface = "1";

#if defined(_LIBCPP_VERSION)
inline constexpr std::string_view k_standard_library = "libc++";
#elif !_GLIBCXX_USE_CXX11_ABI
inline constexpr std::string_view k_standard_library = "libstdc++ with the old std::string (_GLIBCXX_USE_CXX11_ABI=0)";
#elif defined(_GLIBCXX_DEBUG)
inline constexpr std::string_view k_standard_library = "libstdc++ with checked containers (_GLIBCXX_DEBUG)";
#else
inline constexpr std::string_view k_standard_library = "libstdc++";
#endif

template <std::size_t N>
consteval std::array<char, N> text_of_stamp(std::string_view text) {
  std::array<char, N> all{};
  for (std::size_t i = 0; i < text.size(); ++i) all[i] = text[i];  // one too long does not compile
  if (all[N - 1] != 0) throw "the text leaves no room for its end";
  return all;
}

/// Of this compilation.
consteval PluginStamp make_plugin_stamp(std::string_view libtorch) {
  return {text_of_stamp<24>(PluginStampMarks::k_begin),
          text_of_stamp<8>(k_plugin_interface),
          text_of_stamp<32>(k_version),
          text_of_stamp<32>(libtorch),
          text_of_stamp<96>(k_standard_library),
          text_of_stamp<8>(PluginStampMarks::k_end)};
}

}  // namespace onebatch
