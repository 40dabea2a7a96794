#include "trainer/data/number_file.hpp"

#include "trainer/base/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

namespace onebatch {
namespace {

constexpr std::size_t k_most_shown = 40;  // characters of what is no number
constexpr const char* k_spaces = " \t\r,";

// A word of the file, and its line.
using Visit = std::function<void(std::string_view word, std::int64_t line)>;

void visit_words(std::string_view text, std::int64_t line, const Visit& visit) {
  text = text.substr(0, text.find('#'));
  while (true) {
    const std::size_t begin = text.find_first_not_of(k_spaces);
    if (begin == std::string_view::npos) return;
    const std::size_t end = std::min(text.find_first_of(k_spaces, begin), text.size());
    visit(text.substr(begin, end - begin), line);
    text.remove_prefix(end);
  }
}

void visit_file(const std::filesystem::path& file, const char* key, const Visit& visit) {
  std::error_code error;
  std::ifstream in(file);
  if (std::filesystem::is_directory(file, error) || !in)
    throw UserError(
        fmt::format("{} = \"{}\" cannot be read: write the path of a text file of numbers", key, file.string()));
  std::string text;
  for (std::int64_t line = 1; std::getline(in, text); ++line) visit_words(text, line, visit);
  if (in.bad()) throw UserError(fmt::format("{} = \"{}\" cannot be read to its end", key, file.string()));
}

[[noreturn]] void refuse(const std::filesystem::path& file, std::int64_t line, std::string_view word,
                         const std::string& reason) {
  throw UserError(fmt::format("{}:{}: \"{}\" {}", file.string(), line, word.substr(0, k_most_shown), reason));
}

template <typename Number>
bool read_as(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

}  // namespace

std::vector<std::int64_t> read_sample_numbers(const std::filesystem::path& file, std::int64_t count, const char* key) {
  std::vector<std::int64_t> numbers;
  std::vector<bool> seen(static_cast<std::size_t>(count));
  visit_file(file, key, [&](std::string_view word, std::int64_t line) {
    std::int64_t number = 0;
    if (!read_as(word, number) || number < 0 || number >= count)
      refuse(file, line, word, fmt::format("is no sample: write whole numbers from 0 to {}", count - 1));
    if (seen[static_cast<std::size_t>(number)]) refuse(file, line, word, "stands there twice: leave one out");
    seen[static_cast<std::size_t>(number)] = true;
    numbers.push_back(number);
  });
  if (numbers.empty())
    throw UserError(fmt::format("{} = \"{}\" holds no number: write those of the samples to use", key, file.string()));
  return numbers;
}

std::int64_t count_numbers(const std::filesystem::path& file, const char* key) {
  std::int64_t count = 0;
  visit_file(file, key, [&](std::string_view /*word*/, std::int64_t /*line*/) { ++count; });
  return count;
}

std::vector<double> read_numbers(const std::filesystem::path& file, std::int64_t count, const char* key) {
  std::vector<double> numbers;
  visit_file(file, key, [&](std::string_view word, std::int64_t line) {
    double number = 0.0;
    if (!read_as(word, number)) refuse(file, line, word, "is no number");
    numbers.push_back(number);
  });
  if (static_cast<std::int64_t>(numbers.size()) != count)
    throw UserError(
        fmt::format("{} = \"{}\" holds {} numbers, but the training data has {} samples: write one for each", key,
                    file.string(), numbers.size(), count));
  return numbers;
}

}  // namespace onebatch
