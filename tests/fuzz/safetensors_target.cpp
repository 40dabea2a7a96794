#include "trainer/io/safetensors.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

struct Content {
  SafetensorsHeader header;
  std::vector<std::vector<std::byte>> data;
};

Content read(const std::string& bytes) {
  const MemoryFile file(bytes);
  Content content{read_safetensors_header(file.path()), {}};
  for (const SafetensorsEntry& entry : content.header.entries)
    content.data.push_back(read_safetensors_entry(file.path(), content.header, entry));
  return content;
}

std::string write(const Content& content) {
  std::vector<SafetensorsView> views;
  for (std::size_t i = 0; i < content.data.size(); ++i) {
    const SafetensorsEntry& entry = content.header.entries[i];
    views.push_back({entry.name, entry.dtype, entry.shape, content.data[i]});
  }
  const auto file = scratch_folder() / "x.safetensors";
  write_safetensors(file, views, content.header.metadata);
  return read_file(file);
}

void run(std::string_view input) {
  check_round_trip(input, read, write);
}

const Registered k_registered("safetensors", run);

}  // namespace
}  // namespace onebatch::fuzz
