// The manifest of a checkpoint of two files. One that is accepted vouches for both: a byte changed in either is
// refused.
#include "tests/fuzz/fuzz_target.hpp"
#include "trainer/checkpoint/checkpoint_folder.hpp"
#include "trainer/io/durable_file.hpp"

namespace onebatch::fuzz {
namespace {

namespace fs = std::filesystem;

const fs::path& checkpoint() {
  static const fs::path folder = [] {
    const auto file = [](const std::string& content) {
      return [content](const fs::path& path) { return write_text(path, content); };
    };
    return write_checkpoint(scratch_folder(), 3, {{"model.safetensors", file("tensors")}, {"state.json", file("{}")}},
                            {.keep = 0});
  }();
  return folder;
}

bool accepted() {
  const auto answer = unless_refused([] {
    check_checkpoint(checkpoint());
    return true;
  });
  return answer.has_value();
}

void run(std::string_view input) {
  write_file(checkpoint() / "manifest.json", input);
  const bool whole = accepted();
  const auto found = unless_refused([] { return find_latest_checkpoint(scratch_folder()); });
  check(whole == (found && *found && (*found)->step == 3), "the newest whole checkpoint is found, and no other");
  if (!whole) return;
  for (const char* name : {"model.safetensors", "state.json"}) {
    const std::string content = read_file(checkpoint() / name);
    write_file(checkpoint() / name, std::string(content.size(), 'x'));
    const bool still = accepted();
    write_file(checkpoint() / name, content);
    check(!still, std::string("an altered file is refused: ") + name);
  }
}

const Registered k_registered("manifest", run);

}  // namespace
}  // namespace onebatch::fuzz
