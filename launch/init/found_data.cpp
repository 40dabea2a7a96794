#include "launch/init/found_data.hpp"

#include "launch/command_line.hpp"
#include "launch/shell_words.hpp"
#include "trainer/base/error.hpp"
#include "trainer/data/idx.hpp"
#include "trainer/io/folder.hpp"
#include "trainer/settings/key_types.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <sstream>
#include <string_view>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t k_enough_to_split = 20;
constexpr std::array<std::string_view, 9> k_validation = {"val",     "valid", "validation", "validate", "held",
                                                          "heldout", "dev",   "test",       "eval"};

// Of a file's or folder's name, of letters.
std::vector<std::string> words_of(const fs::path& path) {
  std::string letters = lower_case(path.stem().string());
  std::ranges::replace_if(
      letters, [](char letter) { return letter < 'a' || letter > 'z'; }, ' ');
  std::istringstream each(letters);
  return {std::istream_iterator<std::string>(each), {}};
}

bool is_called_val(const fs::path& path) {
  return std::ranges::any_of(words_of(path), [](const std::string& word) {
    return word.starts_with("val") && std::ranges::find(k_validation, word) != k_validation.end();
  });
}

// To convert into: one that is not there, as the source itself is.
std::string new_folder_for(const fs::path& data) {
  std::string name = fs::weakly_canonical(data).stem().string();  // "tables/"
  if (name.empty()) name = "data";
  std::string folder = name;
  for (int i = 1; fs::exists(folder); ++i) folder = i == 1 ? name + "-tensors" : fmt::format("{}-tensors-{}", name, i);
  return folder;
}

// What a program of one's own makes of a format that is not read as it is.
[[noreturn]] void refuse_to_convert(const fs::path& data, const std::string& what) {
  const std::string folder = new_folder_for(data);
  throw UserError(fmt::format(
      "{}: {} is not trained on as it is. Convert it first, and then ask again:\n"
      "  python -m onebatch convert {} {} --to tensors\n  onebatch init {}\n"
      "(docs/python.md has what convert takes; for text --to tokens, for pictures --to images)",
      data.string(), what, quoted_for_shell(data.string()), quoted_for_shell(folder), quoted_for_shell(folder)));
}

[[noreturn]] void refuse_ending(const fs::path& data, const fs::path& file, const std::string& what_to_do,
                                const std::string& ending) {
  const fs::path renamed = fs::path(file).replace_extension(ending);
  throw UserError(fmt::format("{}: a table ({}) is not read as it is: {} {}, and then ask again:\n  onebatch init {}",
                              file.string(), file.extension().string(), what_to_do, renamed.string(),
                              quoted_for_shell((fs::is_directory(data) ? data : renamed).string())));
}

// Those that convert does not know.
void refuse_other_endings(const fs::path& data, const std::vector<fs::path>& files, const std::string& ending) {
  if (ending == ".tsv") refuse_ending(data, files.front(), "write it with commas in the place of tabs as", ".csv");
  if (ending == ".json") refuse_ending(data, files.front(), "write one JSON object a line as", ".jsonl");
  for (const fs::path& file : files) {
    if (file.extension() != ending) refuse_ending(data, file, "rename it to", ending);
  }
}

void refuse_tables(const fs::path& data) {
  if (fs::is_regular_file(data / "dataset_dict.json")) refuse_to_convert(data, "what save_to_disk wrote");
  for (const char* ending : {".parquet", ".arrow", ".csv", ".tsv", ".jsonl", ".json"}) {
    const auto files = files_with(data, ending);
    if (files.empty()) continue;
    refuse_other_endings(data, files, ending);
    refuse_to_convert(data, fmt::format("a table ({})", ending));
  }
  for (const char* ending : {".npy", ".npz", ".pt", ".pth", ".h5", ".hdf5", ".pkl"}) {
    if (!files_with(data, ending).empty())
      throw UserError(
          fmt::format("{}: files that end in {} are not read. In Python, with the arrays in x and y:\n"
                      "  onebatch.save_dataset(\"data.safetensors\", x=x, y=y)\nand then: onebatch init "
                      "data.safetensors",
                      data.string(), ending));
  }
}

}  // namespace

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return text;
}

std::string toml_text(const std::string& text) {
  return quoted(text);
}

std::string toml_text(const std::vector<std::string>& texts) {
  std::vector<std::string> written;
  for (const std::string& text : texts) written.push_back(quoted(text));
  return fmt::format("[{}]", fmt::join(written, ", "));
}

std::vector<fs::path> files_with(const fs::path& data, const std::string& ending) {
  const auto fits = [&](const fs::path& file) {
    return lower_case(file.extension().string()) == ending && !file.filename().string().starts_with('.');
  };
  if (fs::is_regular_file(data)) return fits(data) ? std::vector{data} : std::vector<fs::path>{};
  std::vector<fs::path> files;
  for (const auto& entry : entries_of(data)) {
    if (entry.is_regular_file() && fits(entry.path())) files.push_back(entry.path());
  }
  return files;
}

bool is_named_for_validation(const fs::path& path) {
  return std::ranges::any_of(words_of(path), [](const std::string& word) {
    return std::ranges::find(k_validation, word) != k_validation.end();
  });
}

bool is_named_for_training(const fs::path& path) {
  return std::ranges::any_of(words_of(path), [](const std::string& word) { return word.starts_with("train"); });
}

std::vector<fs::path> files_for_training(const std::vector<fs::path>& files) {
  std::vector<fs::path> left;
  std::ranges::copy_if(files, std::back_inserter(left),
                       [](const fs::path& file) { return !is_named_for_validation(file); });
  return left.empty() ? files : left;
}

std::vector<fs::path> files_for_validation(std::vector<fs::path> files) {
  const bool some_are_val = std::ranges::any_of(files, is_called_val);
  std::erase_if(files, [&](const fs::path& file) {
    return !(some_are_val ? is_called_val(file) : is_named_for_validation(file));
  });
  return files;
}

void validate_with_a_part(FoundData& found) {
  if (found.samples >= k_enough_to_split)
    found.validation.push_back(
        {"fraction", "0.1", "so much of the training data is kept for validation, of each class alike"});
}

void write_places(FoundData& found, const fs::path& data, const std::vector<fs::path>& files) {
  const std::vector<fs::path> train = files_for_training(files);
  std::vector<fs::path> held;
  if (train.size() < files.size()) held = files_for_validation(files);
  const auto place = [&](std::vector<WrittenKey>& keys, const std::vector<fs::path>& of, const char* comment) {
    if (of.size() == 1 && train.size() < 2) return keys.push_back({"path", toml_text(of.front().string()), comment});
    std::vector<std::string> names;
    for (const fs::path& file : of) names.push_back(file.filename().string());
    keys.push_back({"path", toml_text(data.string()), comment});
    keys.push_back({"files", toml_text(names), "within path, in this order"});
  };
  if (held.empty() && files.size() > 1) {
    const bool as_a_pattern = files.front().extension() == ".txt";  // no kind looks for them in a folder by itself
    found.data.push_back({"path", toml_text((as_a_pattern ? data / "*.txt" : data).string()),
                          "all of the folder's files, by their names"});
  } else {
    place(found.data, train, "");
  }
  if (held.empty()) return validate_with_a_part(found);
  place(found.validation, held, "never trained with");
  const std::size_t left = files.size() - train.size() - held.size();
  if (left > 0)
    found.notes.push_back(fmt::format("{} of the {} files {} for the end: no key names {}", left, files.size(),
                                      left == 1 ? "is left" : "are left", left == 1 ? "it" : "them"));
}

MaybeFound find_idx_folder(const fs::path& data) {
  if (!fs::is_directory(data)) return std::nullopt;
  const auto there = [&](const char* name) {
    return fs::exists(data / name) || fs::exists(data / (std::string(name) + ".gz"));
  };
  if (!there("train-images-idx3-ubyte") || !there("train-labels-idx1-ubyte")) return std::nullopt;
  const IdxArray images = read_idx(find_idx(data, "train-images-idx3-ubyte"), 3);
  FoundData found;
  found.sample = SampleIs::image;
  found.samples = images.shape[0];
  found.side = std::max(images.shape[1], images.shape[2]);
  found.what = fmt::format("{} images of {}x{} pixels in MNIST's format (IDX)", images.shape[0], images.shape[1],
                           images.shape[2]);
  found.data = {{"kind", "\"idx\"", "MNIST's format"}, {"path", toml_text(data.string())}};
  if (there("t10k-images-idx3-ubyte"))
    found.validation.push_back({"path", toml_text(data.string()), "the t10k-* files there"});
  else
    validate_with_a_part(found);
  return found;
}

FoundData find_data(const fs::path& data) {
  if (!fs::exists(data))
    throw UserError(fmt::format("there is no {} in {}", data.string(), fs::current_path().string()));
  if (data.extension() == ".pt2")
    throw UserError(fmt::format("{} is a model: write onebatch init DATA --model {}", data.string(), data.string()));
  if (data.extension() == ".toml")
    throw UserError(
        fmt::format("{} is a configuration already: write onebatch train {}", data.string(), data.string()));
  for (const auto& look : {find_idx_folder, find_safetensors, find_tokens, find_shards, find_images, find_text}) {
    if (auto found = look(data)) return *found;
  }
  refuse_tables(data);
  throw UserError(fmt::format(
      "{}: nothing here that can be trained on. init knows folders of class folders of images, lists of images "
      "(.csv with path,label; .jsonl), *.safetensors, token files (*.bin), text (*.txt), shards (*.tar) and "
      "MNIST's files; docs/data.md says how to make them",
      data.string()));
}

}  // namespace onebatch::launch
