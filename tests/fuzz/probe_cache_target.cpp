// A file of the cache is an answer or none; it never ends a run.
#include "trainer/probe/probe_cache.hpp"

#include "tests/fuzz/fuzz_target.hpp"
#include "trainer/documents/documents.hpp"

namespace onebatch::fuzz {
namespace {

namespace fs = std::filesystem;

const ProbeCache& cache() {
  static const ProbeCache one(scratch_folder() / "probe", "a model on a card");
  return one;
}

// The one file that the cache has written.
const fs::path& file() {
  static const fs::path path = [] {
    check(cache().store({}).empty(), "an answer can be kept");
    return fs::directory_iterator(scratch_folder() / "probe")->path();
  }();
  return path;
}

std::string text_of(const RankProfile& rank) {
  return to_json(ClusterProfile{{rank}});
}

void run(std::string_view input) {
  write_file(file(), input);
  const auto answer = cache().load();
  if (!answer) return;
  check(answer->largest_micro_batch >= 1, "an answer has a size that fits");
  check(cache().store(*answer).empty(), "an answer can be kept again");
  const auto again = cache().load();
  check(again && text_of(*again) == text_of(*answer), "an answer that is kept comes back");
}

const Registered k_registered("probe_cache", run);

}  // namespace
}  // namespace onebatch::fuzz
