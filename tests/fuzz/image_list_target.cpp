#include "trainer/images/image_list.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

// One input as both kinds of lists.
void run(std::string_view input) {
  for (const char* name : {"list.csv", "list.jsonl"}) {
    const auto file = scratch_folder() / name;
    write_file(file, input);
    const auto list = unless_refused([&] { return list_images(file, std::nullopt); });
    if (!list) continue;
    check(!list->paths.empty() && list->paths.size() == list->labels.size(), "each image has a label");
    for (const std::int64_t label : list->labels)
      check(label >= 0 && (list->classes.empty() || label < std::ssize(list->classes)), "each label is a class");
    check(!to_text(list->digest()).empty(), "each list has a checksum");
  }
}

const Registered k_registered("image_list", run);

}  // namespace
}  // namespace onebatch::fuzz
