// Tensors by name, token files and shards.
#include "launch/init/found_data.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/shard_index.hpp"
#include "trainer/data/tar_file.hpp"
#include "trainer/data/token_files.hpp"
#include "trainer/images/decode.hpp"
#include "trainer/io/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 8> k_targets = {"y",       "label", "labels",  "target",
                                                  "targets", "class", "classes", "output"};
constexpr std::int64_t k_block = 256;
constexpr std::int64_t k_text_block = 128;  // not as many as there are bytes: outputs could be read in two ways then
constexpr std::int64_t k_looked_through_bytes = std::int64_t{1} << 30;

// Types of the format that no run takes.
bool is_of_no_use(const SafetensorsEntry& entry) {
  return entry.dtype == "U64" || entry.dtype == "C64" || entry.dtype == "F4" || entry.dtype.starts_with("F6_") ||
         entry.dtype.starts_with("F8_");
}

bool is_whole(const SafetensorsEntry& entry) {
  return entry.dtype.starts_with('I') || entry.dtype.starts_with('U') || entry.dtype == "BOOL";
}

bool is_named_for_lengths(const SafetensorsEntry& entry) {
  return is_whole(entry) && entry.shape.size() == 1 && entry.name.find("length") != std::string::npos;
}

std::string shown(const SafetensorsEntry& entry) {
  return fmt::format("{} {} [{}]", entry.name, entry.dtype, fmt::join(entry.shape, ", "));
}

std::string all_shown(const SafetensorsHeader& header) {
  std::vector<std::string> texts;
  for (const SafetensorsEntry& entry : header.entries) texts.push_back(shown(entry));
  return fmt::format("{}", fmt::join(texts, "; "));
}

// Which of a file's tensors are what.
class Columns {
 public:
  explicit Columns(const SafetensorsHeader& header) {
    for (const SafetensorsEntry& entry : header.entries) {
      if (!entry.shape.empty() && !is_of_no_use(entry)) left_.push_back(&entry);
    }
    std::ranges::sort(left_, {}, [](const SafetensorsEntry* entry) { return entry->name; });
    offsets = take([](const SafetensorsEntry& one) { return one.name == "offsets" && one.shape.size() == 1; });
    target = take_target();
    if (target == nullptr) return;
    samples = offsets != nullptr ? offsets->shape[0] - 1 : target->shape[0];
    lengths = take([&](const SafetensorsEntry& one) { return is_column(one) && is_named_for_lengths(one); });
    weights = take([&](const SafetensorsEntry& one) {
      return !is_whole(one) && one.shape == target->shape && one.name.find("weight") != std::string::npos;
    });
    for (const SafetensorsEntry* one : left_) {
      if (is_column(*one)) inputs.push_back(one);
    }
  }

  const SafetensorsEntry* offsets = nullptr;
  const SafetensorsEntry* target = nullptr;
  const SafetensorsEntry* lengths = nullptr;
  const SafetensorsEntry* weights = nullptr;
  std::vector<const SafetensorsEntry*> inputs;
  std::int64_t samples = 0;

 private:
  template <typename Fits>
  const SafetensorsEntry* take(const Fits& fits) {
    const auto found = std::ranges::find_if(left_, [&](const SafetensorsEntry* one) { return fits(*one); });
    if (found == left_.end()) return nullptr;
    const SafetensorsEntry* taken = *found;
    left_.erase(found);
    return taken;
  }

  const SafetensorsEntry* take_target() {
    for (const char* name : k_targets) {
      if (const auto* found = take([&](const SafetensorsEntry& one) { return one.name == name; })) return found;
    }
    // By its type, where that leaves one alone.
    const auto may_be = [](const SafetensorsEntry& one) {
      return is_whole(one) && one.shape.size() == 1 && !is_named_for_lengths(one);
    };
    const auto found = std::ranges::count_if(left_, [&](const SafetensorsEntry* one) { return may_be(*one); });
    return found == 1 && left_.size() > 1 ? take(may_be) : nullptr;
  }

  [[nodiscard]] bool is_column(const SafetensorsEntry& one) const {
    return one.shape[0] == target->shape[0] || one.shape[0] == samples;
  }

  std::vector<const SafetensorsEntry*> left_;
};

// Why no model of the program takes these samples, or what they are to it.
void judge_samples(FoundData& found, const Columns& columns) {
  const SafetensorsEntry& first = *columns.inputs.front();
  if (columns.inputs.size() > 1) {
    found.why_exported = "there are several inputs";
  } else if (columns.offsets != nullptr || columns.lengths != nullptr) {
    found.why_exported = "these are sequences";
  } else if (columns.target->shape.size() > (is_whole(*columns.target) ? 1U : 2U)) {
    found.why_exported = "a sample has several targets";
  } else if (first.shape.size() == 4 && (first.shape[1] == 1 || first.shape[1] == 3)) {
    found.sample = SampleIs::image;
    found.side = std::max(first.shape[2], first.shape[3]);
  } else if (is_whole(first)) {
    found.why_exported = "the input is whole numbers, as of tokens";
  }
  if (!is_whole(*columns.target)) {
    const auto& shape = columns.target->shape;
    found.outputs = shape.size() == 1 ? 1 : shape[1];
    if (shape.size() == 1)
      found.notes.push_back(
          fmt::format("{} is [samples]: mean squared error needs [samples, 1], as {}.unsqueeze(1) makes it",
                      columns.target->name, columns.target->name));
  }
}

void write_pixels(FoundData& found, const SafetensorsEntry& input) {
  if (input.dtype != "U8" || found.sample != SampleIs::image) return;
  const bool grey = input.shape[1] == 1;
  found.data.push_back({"mean", grey ? "[0.449]" : "[0.485, 0.456, 0.406]", "pixels of 0 to 1, less this"});
  found.data.push_back({"std", grey ? "[0.226]" : "[0.229, 0.224, 0.225]", "and divided by this, on the device"});
}

std::int64_t bytes_of(const std::vector<fs::path>& files) {
  std::int64_t bytes = 0;
  for (const fs::path& file : files) bytes += static_cast<std::int64_t>(fs::file_size(file));
  return bytes;
}

// Of which there are some in all, and one in the smallest file.
std::int64_t block_for(const std::vector<fs::path>& files, std::int64_t most) {
  std::int64_t block = std::min(most, bytes_of(files) / 64);
  for (const fs::path& file : files) block = std::min(block, static_cast<std::int64_t>(fs::file_size(file)) / 8);
  return std::max<std::int64_t>(block, 8);
}

// The first image of a shard says how large they are.
void write_pictures(FoundData& found, const DataFile& file, const TarMember& picture) {
  std::vector<std::byte> raw(picture.bytes);
  file.read(picture.begin, raw);
  std::vector<std::uint8_t> bytes(raw.size());
  std::ranges::transform(raw, bytes.begin(), [](std::byte one) { return std::to_integer<std::uint8_t>(one); });
  ImageSize size;
  try {
    size = read_image_header(bytes).size();
  } catch (const std::exception& error) {
    throw UserError(
        fmt::format("{}: {} is no JPEG, PNG or WebP image: {}", file.path().string(), picture.name, error.what()));
  }
  found.sample = SampleIs::image;
  write_image_size(found, size.height, size.width);
}

// Which are looked for as the run will: it finds them remembered.
std::int64_t samples_of(const std::vector<fs::path>& shards, std::vector<std::string> inputs) {
  std::vector<std::string> endings = std::move(inputs);
  endings.emplace_back("cls");
  std::int64_t samples = 0;
  for (const fs::path& shard : shards)
    samples += static_cast<std::int64_t>(remembered_samples(DataFile(shard), endings).size() / endings.size());
  return samples;
}

MaybeFound shards_of(const fs::path& data, const std::vector<fs::path>& files) {
  const DataFile file(files.front());
  TarReader reader(file);
  std::map<std::string, TarMember> endings;  // with a member that has each
  for (int count = 0; count < 64; ++count) {
    const auto member = reader.next();
    if (!member) break;
    const std::string name = fs::path(member->name).filename().string();
    if (const std::size_t dot = name.find('.'); dot != std::string::npos && dot > 0)
      endings.emplace(name.substr(dot + 1), *member);
  }
  std::vector<std::string> inputs;
  std::vector<std::string> all;
  for (const auto& [ending, member] : endings) {
    all.push_back("." + ending);
    if (ending.ends_with("npy")) inputs.push_back(ending);
  }
  std::vector<std::string> pictures;
  for (const char* ending : {"jpg", "jpeg", "png", "webp"}) {
    if (inputs.empty() && endings.contains(ending)) pictures.emplace_back(ending);
  }
  if ((inputs.empty() && pictures.empty()) || !endings.contains("cls"))
    throw UserError(fmt::format(
        "{}: of shards .npy arrays or images (.jpg, .png, .webp) and a .cls label are known here, and these have {}. "
        "Labels in .json are read too, which no init writes: docs/data.md has data.target = \"json:KEY\"",
        files.front().string(), fmt::join(all, ", ")));
  if (!pictures.empty()) inputs = {fmt::format("{}", fmt::join(pictures, ";"))};
  FoundData found;
  found.samples = samples_of(files_for_training(files), inputs);
  found.what = fmt::format("{} samples; {} shard{} in WebDataset's layout", found.samples, files.size(),
                           files.size() == 1 ? "" : "s");
  found.data = {{"kind", "\"tar\"", "WebDataset's layout"}};
  write_places(found, data, files);
  found.data.push_back({"inputs", toml_text(inputs), "the endings of the files that the model takes"});
  found.data.push_back({"target", "\"cls\""});
  if (!pictures.empty()) write_pictures(found, file, endings.at(pictures.front()));
  found.inputs = inputs;
  if (inputs.size() > 1) found.why_exported = "there are several inputs";
  return found;
}

MaybeFound tokens_of(const fs::path& data, const char* ending) {
  const bool text = std::string_view(ending) == ".txt";
  const auto files = files_with(data, ending);
  if (files.empty()) return std::nullopt;
  const TokenType type = text ? TokenType::uint8 : TokenType::automatic;
  const std::int64_t bytes = bytes_of(files);
  const std::int64_t block = block_for(files, text ? k_text_block : k_block);
  FoundData found;
  found.sample = SampleIs::tokens;
  const TokenFiles tokens(files, type, block);
  found.samples = TokenFiles(files_for_training(files), type, block).blocks();
  found.what = fmt::format("{} file{} of {}, {} KiB", files.size(), files.size() == 1 ? "" : "s",
                           text ? "text, whose bytes are the tokens" : "tokens", bytes >> 10);
  found.data = {{"kind", "\"tokens\"", "text as numbers; docs/data.md"}};
  write_places(found, data, files);
  found.data.push_back({"block_size", fmt::format("{}", block), "tokens of a sample: the model's context"});
  if (text) {
    found.data.push_back({"token_type", "\"uint8\"", "a text's bytes are its tokens"});
    found.notes.emplace_back(
        fmt::format("with a tokenizer: python -m onebatch convert {} tokens --to tokens --tokenizer tokenizer.json; "
                    "then onebatch init tokens",
                    files.front().string()));
  }
  if (text || bytes <= k_looked_through_bytes)
    found.data.push_back({"vocabulary", fmt::format("{}", text ? 256 : tokens.look_through().largest.token + 1),
                          "different tokens; the model's may be larger"});
  found.why_exported = "no model of the program takes tokens";
  return found;
}

}  // namespace

MaybeFound find_safetensors(const fs::path& data) {
  const auto files = files_with(data, ".safetensors");
  if (files.empty()) return std::nullopt;
  const auto held = [](const fs::path& file) { return is_named_for_validation(file); };
  const auto first = std::ranges::find_if_not(files, held);
  const fs::path& file = first == files.end() ? files.front() : *first;
  const SafetensorsHeader header = read_safetensors_header(file);
  const Columns columns(header);
  if (columns.target == nullptr || columns.inputs.empty())
    throw UserError(fmt::format(
        "{} has {}. Which of them is the target is not to be guessed: call it y or label, and give all tensors "
        "as many rows as there are samples",
        file.string(), all_shown(header)));
  FoundData found;
  for (const fs::path& one : files) {
    if (!held(one) || files.size() == 1)
      found.samples += one == file ? columns.samples : Columns(read_safetensors_header(one)).samples;
  }
  found.what = fmt::format("{} samples as tensors: {}", found.samples, all_shown(header));
  for (const SafetensorsEntry* input : columns.inputs) found.inputs.push_back(input->name);
  found.data = {{"kind", "\"safetensors\"", "tensors by name, [samples, ...] each"}};
  write_places(found, data, files);
  found.data.push_back({"inputs", toml_text(found.inputs), "what the model takes, in its order"});
  found.data.push_back(
      {"target", toml_text(columns.target->name), is_whole(*columns.target) ? "class indices from 0" : "numbers"});
  if (columns.weights != nullptr)
    found.data.push_back({"weights", toml_text(columns.weights->name), "what each target counts"});
  if (columns.lengths != nullptr)
    found.data.push_back({"lengths", toml_text(columns.lengths->name), "of sequences that are padded to the longest"});
  if (columns.offsets != nullptr)
    found.data.push_back({"offsets", toml_text(columns.offsets->name), "where each sequence begins"});
  judge_samples(found, columns);
  write_pixels(found, *columns.inputs.front());
  return found;
}

MaybeFound find_tokens(const fs::path& data) {
  return tokens_of(data, ".bin");
}

MaybeFound find_text(const fs::path& data) {
  return tokens_of(data, ".txt");
}

MaybeFound find_shards(const fs::path& data) {
  const auto files = files_with(data, ".tar");
  return files.empty() ? std::nullopt : shards_of(data, files);
}

}  // namespace onebatch::launch
