// Gives every input that is kept in the corpora to its target, without libFuzzer and sanitizers: replay FOLDER, with a
// folder per target.
#include "tests/fuzz/fuzz_target.hpp"

#include <algorithm>
#include <exception>
#include <iostream>

namespace onebatch::fuzz {
namespace {

namespace fs = std::filesystem;

int num_failures = 0;

void fail(const std::string& what) {
  std::cerr << what << "\n";
  ++num_failures;
}

void replay(const Target& target, const fs::path& folder) {
  if (!fs::is_directory(folder) || fs::is_empty(folder))
    return fail(folder.string() + ": a target needs inputs to start from");
  for (const auto& entry : fs::directory_iterator(folder)) {
    try {
      target.run(read_file(entry.path()));
    } catch (const std::exception& error) {
      fail(entry.path().string() + ": " + error.what());
    }
  }
}

int replay_all(const fs::path& corpora) {
  for (const Target& target : targets()) replay(target, corpora / target.name);
  for (const auto& entry : fs::directory_iterator(corpora)) {
    const std::string name = entry.path().filename().string();
    if (std::ranges::none_of(targets(), [&](const Target& one) { return one.name == name; }))
      fail(entry.path().string() + ": no target");
  }
  std::cout << targets().size() << " targets, " << num_failures << " failures\n";
  return num_failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace onebatch::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_replay FOLDER\n";
    return 2;
  }
  return onebatch::fuzz::replay_all(argv[1]);
}
