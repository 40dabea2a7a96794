#include "trainer/data/spool.hpp"

#include "tests/unit/scratch_folder.hpp"
#include "trainer/base/error.hpp"
#include "trainer/base/mix_bits.hpp"
#include "trainer/data/pipe_command.hpp"
#include "trainer/io/durable_file.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>

namespace onebatch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ScratchFolder;
using testing::write_bytes;

namespace fs = std::filesystem;

std::string refusal_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing was refused";
}

TEST(PipeCommandTest, words_are_split_as_a_shell_splits_them) {
  EXPECT_THAT(split_words("  curl  -s\thttp://a/b?c=*  "), ElementsAre("curl", "-s", "http://a/b?c=*"));
  EXPECT_THAT(split_words(R"(sh -c "echo \"$HOME\" \a" '' 'a "b' c\ d)"),
              ElementsAre("sh", "-c", R"(echo "$HOME" \a)", "", R"(a "b)", "c d"));
  EXPECT_THAT(split_words(R"(a'b'"c"d)"), ElementsAre("abcd"));
  EXPECT_THAT(split_words(" \t\n"), IsEmpty());
  EXPECT_THAT(split_words("a \\\n b"), ElementsAre("a", "b"));
  EXPECT_THAT(split_words("a\\\nb \"c\\\nd\" \\\n''"), ElementsAre("ab", "cd", ""));
  EXPECT_THAT(split_words("\\\n"), IsEmpty());
  EXPECT_THAT(refusal_of([] { split_words("cat 'a"); }), HasSubstr("does not end"));
  EXPECT_THAT(refusal_of([] { split_words("cat \"a'"); }), HasSubstr("does not end"));
  EXPECT_THAT(refusal_of([] { split_words("cat \\"); }), HasSubstr("backslash"));
}

// Each word and a bar behind it; none where the shell refuses the text.
std::optional<std::string> words_of_sh(const std::string& text, const fs::path& script) {
  write_bytes(script, "set -- " + text + "\nfor word; do printf '%s|' \"$word\"; done\n");
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> out(
      ::popen(("sh " + script.string() + " 2>/dev/null; echo $?").c_str(), "r"), ::pclose);
  std::string all;
  for (int c = std::fgetc(out.get()); c != EOF; c = std::fgetc(out.get())) all += static_cast<char>(c);
  if (!all.ends_with("0\n")) return std::nullopt;
  return all.substr(0, all.size() - 2);
}

TEST(PipeCommandTest, random_words_are_the_shells) {
  constexpr std::string_view k_letters = "ab  ''\"\"\\\t-";
  const ScratchFolder folder;
  int accepted = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    std::string text;
    for (std::uint64_t k = 0; k < 1 + i % 14; ++k) text += k_letters[mix_bits(i * 100 + k) % k_letters.size()];
    if (text.ends_with('\\')) continue;  // the end of the line is quoted then
    std::string own;
    const std::string refused = refusal_of([&] {
      for (const std::string& word : split_words(text)) own += word + "|";
    });
    const bool is_refused = refused != "nothing was refused";
    const auto shells = words_of_sh(text, folder / "words.sh");
    ASSERT_EQ(is_refused, !shells.has_value()) << text;
    if (is_refused) continue;
    ++accepted;
    EXPECT_EQ(own, *shells) << text;
  }
  EXPECT_GT(accepted, 100);
}

TEST(PipeCommandTest, no_shell_is_between) {
  const ScratchFolder folder;
  EXPECT_EQ(read_pipe("pipe:printf %s '$HOME' \"*\"", folder / "out", 100), 6U);
  EXPECT_EQ(read_text(folder / "out"), "$HOME*");
  EXPECT_EQ(read_pipe("pipe:sh -c 'printf a; printf b'", folder / "out", 2), 2U);
  EXPECT_EQ(read_text(folder / "out"), "ab");
}

TEST(PipeCommandTest, what_goes_wrong_names_the_command) {
  const ScratchFolder folder;
  const auto refused = [&](const std::string& name) {
    return refusal_of([&] { read_pipe(name, folder / "out", 1000); });
  };
  EXPECT_EQ(refused("pipe:sh -c 'echo x; exit 3'"), "pipe:sh -c 'echo x; exit 3' failed with exit code 3");
  EXPECT_EQ(refused("pipe:sh -c 'kill -9 $$'"), "pipe:sh -c 'kill -9 $$' was ended by signal 9");
  EXPECT_THAT(refused("pipe:no-such-program x"), HasSubstr("pipe:no-such-program x cannot be started: No such file"));
  EXPECT_EQ(refused("pipe:true"), "pipe:true gave nothing");
  EXPECT_THAT(refused("pipe:yes"), HasSubstr("gives more than is left of data.spool_mb"));
  EXPECT_THAT(refused("pipe: "), HasSubstr("no command follows"));
}

class SpoolTest : public ::testing::Test {
 protected:
  SpoolTest() {
    fs::create_directories(folder_ / "tmp");
    ::setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
  }
  ~SpoolTest() override { ::unsetenv("TMPDIR"); }

  // Leaves a line for each time that it was run.
  [[nodiscard]] std::string counting(const std::string& words) const {
    return fmt::format("pipe:sh -c 'echo x >> {}; {}'", (folder_ / "runs").string(), words);
  }
  [[nodiscard]] std::size_t runs() const { return fs::file_size(folder_ / "runs") / 2; }
  // Of files that are left.
  [[nodiscard]] static std::ptrdiff_t left() {
    const fs::path folder = Spool::place_of("x").parent_path();
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  }

  ScratchFolder folder_;
};

TEST_F(SpoolTest, a_command_is_run_once_for_all_that_read_it) {
  const std::string name = counting("sleep 0.2; echo data");
  {
    std::vector<std::unique_ptr<Spool>> spools(4);
    std::vector<std::thread> threads;
    for (auto& spool : spools) threads.emplace_back([&] { spool = std::make_unique<Spool>(name, 100); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(runs(), 1U);
    spools.front().reset();
    EXPECT_EQ(read_text(spools.back()->path()), "data\n");
    EXPECT_EQ(spools.back()->bytes(), 5U);
  }
  EXPECT_EQ(left(), 0) << "the last one removes it";
  { const Spool again(name, 100); }
  EXPECT_EQ(runs(), 2U);
}

TEST_F(SpoolTest, what_a_killed_process_left_is_made_anew) {
  const std::string name = counting("echo data");
  fs::create_directory(Spool::place_of(name).parent_path());
  write_bytes(Spool::place_of(name), "half");
  write_bytes(Spool::place_of(name).string() + ".partial", "a quarter");
  const Spool spool(name, 100);
  EXPECT_EQ(read_text(spool.path()), "data\n");
  EXPECT_EQ(runs(), 1U);
}

TEST_F(SpoolTest, a_failure_leaves_nothing) {
  EXPECT_THAT(refusal_of([] { const Spool spool("pipe:sh -c 'echo x; exit 3'", 100); }), HasSubstr("exit code 3"));
  EXPECT_THAT(refusal_of([] { const Spool spool("pipe:yes", 100); }), HasSubstr("data.spool_mb"));
  EXPECT_EQ(left(), 0);
}

TEST_F(SpoolTest, a_folder_that_others_may_write_to_is_refused) {
  const fs::path folder = Spool::place_of("x").parent_path();
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::all);
  EXPECT_THAT(refusal_of([] { const Spool spool("pipe:echo x", 100); }), HasSubstr("set TMPDIR to another place"));
}

TEST(SpoolPlaceTest, what_a_command_may_read_otherwise_is_another_file) {
  const ScratchFolder folder;
  const fs::path before = fs::current_path();
  const fs::path here = Spool::place_of("pipe:cat 000.tar");
  EXPECT_EQ(Spool::place_of("pipe:cat 000.tar"), here);
  fs::current_path(folder.path());
  EXPECT_NE(Spool::place_of("pipe:cat 000.tar"), here);
  fs::current_path(before);
  for (const std::string name : {"pipe:sh -c 'cat $SPOOLED_FROM/a.tar'", "pipe:sh -c 'cat ${SPOOLED_FROM}.tar'"}) {
    ::unsetenv("SPOOLED_FROM");
    const fs::path unset = Spool::place_of(name);
    ::setenv("SPOOLED_FROM", "x", 1);
    const fs::path set = Spool::place_of(name);
    EXPECT_NE(set, unset) << name;
    EXPECT_EQ(Spool::place_of(name), set);
  }
  ::unsetenv("SPOOLED_FROM");
}

}  // namespace
}  // namespace onebatch
