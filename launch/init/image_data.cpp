// Image files: in a folder for each class, for training and validation apart, or in a list.
#include "launch/init/found_data.hpp"

#include "launch/shell_words.hpp"
#include "trainer/base/error.hpp"
#include "trainer/images/decode.hpp"
#include "trainer/images/image_list.hpp"
#include "trainer/io/folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t k_looked_at = 48;
constexpr std::int64_t k_small = 96;  // pixels of the longer side: models of the CIFAR kind
constexpr std::int64_t k_side = 224;  // else, as models of the ImageNet kind take them
constexpr auto k_reached =
    fs::directory_options::follow_directory_symlink | fs::directory_options::skip_permission_denied;
constexpr std::string_view k_endings[] = {".jpg", ".jpeg", ".png", ".webp"};

bool is_image(const fs::path& file) {
  return std::ranges::find(k_endings, lower_case(file.extension().string())) != std::end(k_endings);
}

bool holds_images(const fs::path& folder) {
  return std::ranges::any_of(fs::recursive_directory_iterator(folder, k_reached),
                             [](const fs::directory_entry& entry) { return is_image(entry.path()); });
}

std::vector<fs::path> folders_in(const fs::path& data) {
  std::vector<fs::path> folders;
  for (const auto& entry : entries_of(data)) {
    if (entry.is_directory() && !entry.path().filename().string().starts_with('.')) folders.push_back(entry.path());
  }
  return folders;
}

// A folder of folders named for what they are for; else all is for training.
struct Split {
  fs::path train;
  fs::path held;  // empty: none
};

// Empty: none is named for it.
fs::path training_folder(const fs::path& data, const std::vector<fs::path>& folders) {
  const auto is_train = [](const fs::path& folder) { return lower_case(folder.filename().string()) == "train"; };
  if (std::ranges::count_if(folders, is_train) == 1) return *std::ranges::find_if(folders, is_train);
  std::vector<fs::path> named;
  std::ranges::copy_if(folders, std::back_inserter(named), is_named_for_training);
  // Those without folders in them may be classes.
  std::vector<fs::path> of_classes;
  std::ranges::copy_if(named, std::back_inserter(of_classes),
                       [](const fs::path& folder) { return !folders_in(folder).empty(); });
  if (of_classes.empty()) return named.empty() ? fs::path() : named.back();
  if (of_classes.size() == 1) return of_classes.front();
  std::vector<std::string> names;
  for (const fs::path& folder : of_classes) names.push_back(folder.filename().string());
  throw UserError(
      fmt::format("{}: which of {} is to be trained on is not to be guessed: call it train, or write onebatch init {}",
                  data.string(), fmt::join(names, ", "), quoted_for_shell(of_classes.front().string())));
}

Split split_of(const fs::path& data) {
  std::vector<fs::path> folders = folders_in(data);
  Split split{training_folder(data, folders), {}};
  if (split.train.empty()) return {data, {}};
  std::erase(folders, split.train);
  if (const auto held = files_for_validation(folders); !held.empty()) split.held = held.front();
  const bool has_classes = !folders_in(split.train).empty();
  // A folder of images that is called "train" may be a class among others.
  if (!has_classes && split.held.empty() && !folders.empty()) return {data, {}};
  // Without labels nothing can be validated.
  if (has_classes && !split.held.empty() && folders_in(split.held).empty()) split.held.clear();
  return split;
}

bool is_list(const fs::path& data) {
  if (!fs::is_regular_file(data)) return false;
  std::ifstream in(data);
  std::string line;
  std::getline(in, line);
  if (data.extension() == ".csv")
    return line.find("path") != std::string::npos && line.find("label") != std::string::npos;
  return data.extension() == ".jsonl" && line.find("\"path\"") != std::string::npos;
}

struct Sizes {
  std::int64_t height = 0;  // the medians
  std::int64_t width = 0;
  std::int64_t broken = 0;
};

Sizes sizes_of(const ImageList& list) {
  const auto count = static_cast<std::int64_t>(list.paths.size());
  const std::int64_t looked = std::min(count, k_looked_at);
  std::vector<std::int64_t> heights;
  std::vector<std::int64_t> widths;
  for (std::int64_t i = 0; i < looked; ++i) {
    std::ifstream in(list.file(i * count / looked), std::ios::binary);
    const std::vector<char> raw{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::vector<std::uint8_t> bytes(raw.begin(), raw.end());
    try {
      const ImageSize size = read_image_header(bytes).size();
      heights.push_back(size.height);
      widths.push_back(size.width);
    } catch (const std::exception&) {  // named by `onebatch data`
    }
  }
  const auto median = [](std::vector<std::int64_t>& of) {
    if (of.empty()) return std::int64_t{0};
    std::ranges::nth_element(of, of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2));
    return of[of.size() / 2];
  };
  const auto read = static_cast<std::int64_t>(heights.size());
  return {median(heights), median(widths), looked - read};
}

FoundData images_of(const fs::path& train, const fs::path& held) {
  const ImageList list = list_images(train, std::nullopt);
  const Sizes sizes = sizes_of(list);
  if (sizes.height == 0)
    throw UserError(fmt::format(
        "{}: none of the images that were looked at can be read: they must be JPEG, PNG or WebP", train.string()));
  FoundData found;
  found.sample = SampleIs::image;
  found.samples = static_cast<std::int64_t>(list.paths.size());
  const std::string classes = list.classes.empty() ? "numbered" : fmt::format("{}", list.classes.size());
  found.what = fmt::format("{} images of {} classes, {}x{} pixels in the middle", list.paths.size(), classes,
                           sizes.height, sizes.width);
  found.data = {{"kind", "\"image_folder\"", "JPEG, PNG and WebP files; docs/images.md"},
                {"path", toml_text(train.string()),
                 fs::is_directory(train) ? "a folder for each class" : "path and label of each image"}};
  write_image_size(found, sizes.height, sizes.width);
  found.data.push_back({"on_broken", "\"skip\"", "a file that cannot be read is named once and counts for nothing"});
  if (sizes.broken > 0)
    found.notes.push_back(fmt::format("{} of {} images that were looked at cannot be read: onebatch data names them",
                                      sizes.broken, std::min<std::int64_t>(found.samples, k_looked_at)));
  if (held.empty()) {
    validate_with_a_part(found);
  } else {
    list_images(held, list.classes);  // the same classes, or it says which is not
    found.validation.push_back({"path", toml_text(held.string()), "the same classes"});
  }
  return found;
}

// Beside a list for training the one for validation: train.csv and val.csv.
fs::path list_beside(const fs::path& list) {
  if (!is_named_for_training(list)) return {};
  auto others = files_with(list.parent_path().empty() ? "." : list.parent_path(), list.extension().string());
  std::erase_if(others, [](const fs::path& other) { return !is_list(other); });
  others = files_for_validation(std::move(others));
  return others.empty() ? fs::path() : list.parent_path() / others.front().filename();
}

}  // namespace

void write_image_size(FoundData& found, std::int64_t height, std::int64_t width) {
  const bool small = std::max(height, width) <= k_small;
  found.side = small ? std::min(height, width) : k_side;
  found.data.push_back({"image_size", fmt::format("[{0}, {0}]", found.side), "height and width that the model gets"});
  if (small) {
    found.data.push_back(
        {"resize", fmt::format("{}", found.side), "the shorter side; these images are small, and stay so"});
    found.augment.push_back({"crop_padding", fmt::format("{}", std::max<std::int64_t>(1, found.side / 8)),
                             "each is shifted by up to so many pixels"});
  } else {
    found.augment.push_back(
        {"random_resized_crop", "true", "a part of each image, as torchvision's RandomResizedCrop"});
  }
  found.augment.push_back(
      {"horizontal_flip", "true", "false for digits, letters, and whatever means another thing mirrored"});
}

MaybeFound find_images(const fs::path& data) {
  if (is_list(data)) return images_of(data, list_beside(data));
  if (!fs::is_directory(data)) return std::nullopt;
  for (const char* ending : {".csv", ".jsonl"}) {
    for (const fs::path& file : files_with(data, ending)) {
      if (is_list(file) && !is_named_for_validation(file)) return images_of(file, list_beside(file));
    }
  }
  if (!holds_images(data)) return std::nullopt;
  const Split split = split_of(data);
  if (folders_in(split.train).empty())
    throw UserError(fmt::format(
        "{} holds images and no folders, so nothing says what they show: put those of each class into a folder "
        "of its own, as in {}/cat/1.jpg, or write a list, labels.csv, with path,label in its first line",
        split.train.string(), split.train.string()));
  return images_of(split.train, split.held);
}

}  // namespace onebatch::launch
