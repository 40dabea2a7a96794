// Damaged files of six formats, read by name as training reads them: mutated_files CORPORA COUNT [SEED].
//
// Makes COUNT files of each format out of the inputs in CORPORA, changed by SEED, and reads every one of them to its
// end. A file is read, or refused by an error that names it; nothing crashes, no file takes more memory than
// k_most_bytes, and none is kept. Where the address sanitizer is built in, every allocation is counted and leaks are
// looked for at the end; elsewhere the process cannot have more address space than that. Prints a line for each format,
// and returns 1 where one file did what it must not; that file is kept and named.
#include "tests/fuzz/mutation.hpp"

#include "trainer/data/image_files.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/data/tar_file.hpp"
#include "trainer/data/token_files.hpp"
#include "trainer/images/resample.hpp"
#include "trainer/io/safetensors.hpp"

#include "tests/fuzz/fuzz_target.hpp"
#include "tests/fuzz/memory_bound.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <set>

namespace onebatch::fuzz {
namespace {

namespace fs = std::filesystem;

// A pixel takes 3 bytes, and 4 more while libwebp decodes it: of a file that says it has very many (WebP's may have any
// number in a few bytes), memory is bounded by the pixels that are read at most, here fewer than in training.
constexpr std::int64_t k_pixels = std::int64_t{1} << 22;
constexpr std::int64_t k_most_bytes = std::int64_t{64} << 20;

struct Format {
  std::string name;  // of its corpus
  std::string ending;
  std::function<void(const fs::path&)> read;
};

// As data.kind = "image_folder" does it: all of it and a part, each at another size.
void read_image(const fs::path& file) {
  const auto images = listed_images({file.parent_path(), {file.filename().string()}, {0}, {"class"}});
  try {
    const std::vector<std::uint8_t> bytes = images->bytes(0);
    const ImageHeader header = read_image_header(bytes, k_pixels);
    const ImageSize size = header.size();
    const ImageBox all{0, 0, size.height, size.width};
    const ImageBox part{size.height / 3, size.width / 3, (size.height + 2) / 3, (size.width + 2) / 3};
    for (const ImageBox& box : {all, part}) {
      const Image image = resized(decode_part(bytes, header, box, {32, 32}), {32, 32});
      check(image.pixels.size() == std::size_t{32} * 32 * 3, "an image has the size that was asked for");
    }
  } catch (const ImageError& error) {
    throw UserError(images->name(0) + " " + error.what());
  }
}

void read_tar(const fs::path& path) {
  const DataFile file(path);
  for (const TarPlace& place : index_samples(file, {"npy"})) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(place.bytes));
    file.read(place.begin, bytes);
    try {
      check(read_npy_header(bytes).begin <= bytes.size(), "a header lies in its member");
    } catch (const UserError& error) {
      throw UserError(fmt::format("{}: the .npy at byte {} {}", path.string(), place.begin, error.what()));
    }
  }
}

void read_safetensors(const fs::path& file) {
  const SafetensorsHeader header = read_safetensors_header(file);
  for (const SafetensorsEntry& entry : header.entries)
    check(read_safetensors_entry(file, header, entry).size() == entry.end - entry.begin, "an entry is read whole");
}

void read_tokens(const fs::path& file) {
  const TokenFiles files({file}, TokenType::automatic, 3);
  const TokenFiles::Range range = files.look_through();
  std::vector<std::int64_t> tokens(4);
  for (std::int64_t block = 0; block < files.blocks(); ++block) {
    files.read(block, tokens);
    for (const std::int64_t token : tokens)
      check(range.least.token <= token && token <= range.largest.token, "a token lies between the extremes");
  }
}

std::vector<Format> formats() {
  return {{"jpeg", ".jpg", read_image},
          {"png", ".png", read_image},
          {"webp", ".webp", read_image},
          {"tar", ".tar", read_tar},
          {"safetensors", ".safetensors", read_safetensors},
          {"tokens", ".bin", read_tokens}};
}

std::vector<std::string> inputs_of(const fs::path& folder) {
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.insert(entry.path());
  std::vector<std::string> inputs;
  for (const fs::path& file : files) inputs.push_back(read_file(file));
  return inputs;
}

struct Counts {
  int read = 0;
  int refused = 0;
  int failed = 0;
  std::int64_t most_bytes = 0;
};

// What is wrong with how a file was dealt with; empty where nothing is.
std::string wrong_with(const Format& format, const fs::path& file, Counts& counts) {
  const MemoryBound bound(k_most_bytes);
  std::string wrong;
  try {
    format.read(file);
    ++counts.read;
  } catch (const UserError& error) {
    ++counts.refused;
    if (std::string_view(error.what()).find(file.string()) == std::string_view::npos)
      wrong = std::string("the refusal does not name the file: ") + error.what();
  } catch (const std::exception& error) {
    wrong = error.what();
  }
  counts.most_bytes = std::max(counts.most_bytes, bound.peak_bytes());
  if (bound.peak_bytes() > k_most_bytes) wrong = fmt::format("took {} bytes of memory", bound.peak_bytes());
  return wrong;
}

Counts try_format(const Format& format, const std::vector<std::string>& inputs, int count, std::uint64_t seed) {
  Counts counts;
  for (int number = 0; number < count; ++number) {
    const fs::path file = scratch_folder() / fmt::format("{}-{}-{}{}", format.name, seed, number, format.ending);
    write_file(file, mutated(inputs, seed, static_cast<std::uint64_t>(number)));
    const std::string wrong = wrong_with(format, file, counts);
    if (!wrong.empty()) {
      ++counts.failed;
      fs::copy_file(file, file.filename(), fs::copy_options::overwrite_existing);
      std::cerr << file.filename().string() << ": " << wrong << "\n";
    }
    fs::remove(file);
  }
  return counts;
}

bool holds(const Format& format, const fs::path& corpora, int count, std::uint64_t seed) {
  const Counts counts = try_format(format, inputs_of(corpora / format.name), count, seed);
  std::cout << fmt::format(
      "{:<12} {:5} files: {:5} read, {:5} refused by name, {} failed{}\n", format.name, count, counts.read,
      counts.refused, counts.failed,
      MemoryBound::counts() ? fmt::format("; {} KB of memory at most", counts.most_bytes >> 10) : "");
  // Were none read, or none refused, the changes would be too large, or too small, to try anything.
  return counts.failed == 0 && counts.read > 0 && counts.refused > 0;
}

int try_all(const fs::path& corpora, int count, std::uint64_t seed) {
  bool all = true;
  for (const Format& format : formats()) all = holds(format, corpora, count, seed) && all;
  return all ? 0 : 1;
}

}  // namespace
}  // namespace onebatch::fuzz

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: mutated_files CORPORA COUNT [SEED]\n";
    return 2;
  }
  return onebatch::fuzz::try_all(argv[1], std::stoi(argv[2]), argc == 4 ? std::stoull(argv[3]) : 1);
}
