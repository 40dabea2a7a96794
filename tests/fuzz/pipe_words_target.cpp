#include "trainer/data/pipe_command.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

void append_quoted(std::string& text, const std::string& word) {
  text += '\'';
  for (const char c : word) {
    if (c == '\'') text += R"('\')";
    text += c;
  }
  text += '\'';
}

// Words that are quoted are the words that they were.
std::string together(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += ' ';
    append_quoted(text, word);
  }
  return text;
}

void run(std::string_view input) {
  const auto words = unless_refused([&] { return split_words(std::string(input)); });
  if (words) check(split_words(together(*words)) == *words, "quoted words are themselves");
}

const Registered k_registered("pipe_words", run);

}  // namespace
}  // namespace onebatch::fuzz
