#include "trainer/data/pipe_command.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string(R"('\'')") : std::string(1, c);
  return text + "'";
}

// Words that are quoted are the words that they were.
std::string together(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quoted(word);
  return text;
}

void run(std::string_view input) {
  const auto words = unless_refused([&] { return split_words(std::string(input)); });
  if (words) check(split_words(together(*words)) == *words, "quoted words are themselves");
}

const Registered k_registered("pipe_words", run);

}  // namespace
}  // namespace onebatch::fuzz
