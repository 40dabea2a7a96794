// What the fuzz targets share. A target is one function of one input; it throws where a parser did what it must not:
// anything but a UserError for what it refuses, or a value that does not survive being written and read again.
#pragma once

#include "trainer/base/error.hpp"

#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace onebatch::fuzz {

struct Target {
  std::string name;
  std::function<void(std::string_view input)> run;
};

/// Those that are linked into this program.
std::vector<Target>& targets();

/// At namespace level of a target's file: makes it known.
struct Registered {
  Registered(std::string name, std::function<void(std::string_view)> run) {
    targets().push_back({std::move(name), std::move(run)});
  }
};

inline void check(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("does not hold: " + what);
}

/// What `parse` returns; none where it refuses as its header says, which must say something. Every other exception goes
/// on.
template <typename Refusal = UserError, typename Parse>
auto unless_refused(Parse parse) -> std::optional<decltype(parse())> {
  try {
    return parse();
  } catch (const Refusal& error) {
    check(!std::string_view(error.what()).empty(), "a refusal says why");
    return std::nullopt;
  }
}

/// A parser of text and its writer: what was accepted and written is accepted again and written alike.
template <typename Refusal = UserError, typename Parse, typename Write>
void check_round_trip(std::string_view input, Parse parse, Write write) {
  const auto value = unless_refused<Refusal>([&] { return parse(std::string(input)); });
  if (!value) return;
  const std::string text = write(*value);
  const auto again = unless_refused<Refusal>([&] { return parse(text); });
  check(again.has_value(), "what was written is accepted: " + text);
  check(write(*again) == text, "what was written is read alike: " + text + "\nbecame " + write(*again));
}

/// An input as a file that lies in memory alone.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::filesystem::path path() const;

 private:
  int descriptor_;
};

/// This process's own folder, empty at first and removed at the end, for what has to be written under a name.
const std::filesystem::path& scratch_folder();
void write_file(const std::filesystem::path& file, std::string_view bytes);
std::string read_file(const std::filesystem::path& file);

}  // namespace onebatch::fuzz
