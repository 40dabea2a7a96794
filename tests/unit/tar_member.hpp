// Tar files that tests make, without the code that reads them.
#pragma once

#include <iomanip>
#include <sstream>
#include <string>

namespace onebatch::testing {

inline std::string octal(std::size_t value, int digits) {
  std::ostringstream text;
  text << std::oct << std::setw(digits) << std::setfill('0') << value;
  return text.str();
}

/// A member's header and content in whole blocks: POSIX ustar. A file ends with two blocks of zeros.
inline std::string tar_member(const std::string& name, const std::string& content) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, 11, octal(content.size(), 11));
  header.replace(148, 8, 8, ' ');
  header[156] = '0';
  header.replace(257, 5, "ustar");
  std::size_t sum = 0;
  for (const char byte : header) sum += static_cast<unsigned char>(byte);
  header.replace(148, 6, octal(sum, 6));
  header[154] = '\0';
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

}  // namespace onebatch::testing
