#include "trainer/data/npy.hpp"
#include "trainer/data/tar_file.hpp"

#include "tests/fuzz/fuzz_target.hpp"

namespace onebatch::fuzz {
namespace {

void read_all(const std::filesystem::path& path) {
  const DataFile file(path);
  for (const TarPlace& place : index_samples(file, {"npy"})) {
    check(place.begin <= file.bytes() && place.bytes <= file.bytes() - place.begin, "a member lies in the file");
    std::vector<std::byte> bytes(static_cast<std::size_t>(place.bytes));
    file.read(place.begin, bytes);
    const NpyHeader header = read_npy_header(bytes);
    check(header.begin <= bytes.size(), "a header lies in its member");
  }
}

void run(std::string_view input) {
  const MemoryFile file(input);
  unless_refused([&] {
    read_all(file.path());
    return true;
  });
  unless_refused([&] { return read_npy_header(std::as_bytes(std::span(input))); });
}

const Registered k_registered("tar", run);

}  // namespace
}  // namespace onebatch::fuzz
