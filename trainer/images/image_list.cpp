#include "trainer/images/image_list.hpp"

#include "trainer/base/error.hpp"
#include "trainer/io/folder.hpp"
#include "trainer/io/json_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <span>
#include <sstream>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

std::string lower_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
  return text;
}

// Those that torchvision takes for images, and some more: what cannot be read of them is to be named, not left out.
bool is_image_name(const fs::path& file) {
  constexpr std::array<std::string_view, 16> k_endings = {".jpg", ".jpeg", ".jpe",  ".png",  ".webp", ".ppm",
                                                          ".bmp", ".pgm",  ".tif",  ".tiff", ".gif",  ".avif",
                                                          ".jxl", ".heic", ".heif", ".jfif"};
  return std::ranges::find(k_endings, lower_case(file.extension().string())) != k_endings.end();
}

// Of a folder and those below it: by the folder's path, then by name, as sorted(os.walk(folder)) has them.
std::vector<std::string> images_below(const fs::path& root, const std::string& folder) {
  std::map<std::string, std::vector<std::string>> by_folder;
  for_each_file_below(root / folder, [&](const fs::directory_entry& file) {
    if (is_image_name(file.path()))
      by_folder[file.path().parent_path().string()].push_back(file.path().filename().string());
  });
  std::vector<std::string> paths;
  const std::size_t above = root.string().size() + (root.string().ends_with('/') ? 0 : 1);
  for (auto& [parent, names] : by_folder) {
    std::ranges::sort(names);
    for (const std::string& name : names) paths.push_back(parent.substr(above) + "/" + name);
  }
  return paths;
}

std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(5, names.size()); ++i)
    text += (i > 0 ? ", \"" : "\"") + names[i] + '"';
  return names.size() > 5 ? fmt::format("{} and {} more", text, names.size() - 5) : text;
}

// The class's index. Throws UserError where the training data has no such class.
std::int64_t index_of(const std::vector<std::string>& classes, const std::string& name, const std::string& where) {
  const auto found = std::ranges::lower_bound(classes, name);
  if (found == classes.end() || *found != name)
    throw UserError(
        fmt::format("{}: the class \"{}\" is none of the training data's {} ({}): mend its name, or take it "
                    "out",
                    where, name, classes.size(), some_of(classes)));
  return found - classes.begin();
}

std::vector<std::string> folders_in(const fs::path& root) {
  std::vector<std::string> names;
  for (const auto& entry : entries_of(root)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  return names;
}

ImageList list_folder(const fs::path& root, const std::optional<std::vector<std::string>>& classes) {
  refuse_half_converted(root);
  ImageList list{root, {}, {}, {}};
  const std::vector<std::string> folders = folders_in(root);
  if (folders.empty())
    throw UserError(root.string() + " holds no folders: write the folder that has one for each class, as cat/1.jpg");
  list.classes = classes.value_or(folders);
  for (const std::string& folder : folders) {
    const std::int64_t label = index_of(list.classes, folder, root.string());
    for (std::string& path : images_below(root, folder)) list.paths.push_back(std::move(path));
    // Of the training data, as torchvision has it; nobody is asked to validate with every class.
    if (!classes && list.labels.size() == list.paths.size())
      throw UserError((root / folder).string() +
                      " holds no image (.jpg, .jpeg, .png, .webp): put one in, or remove it");
    list.labels.resize(list.paths.size(), label);
  }
  return list;
}

struct ListedImage {
  std::string path;
  std::string label;
};

// Without the mark that some programs put before UTF-8.
std::string whole_file(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw UserError(file.string() + " cannot be read");
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  return text.starts_with("\xef\xbb\xbf") ? text.substr(3) : text;
}

// RFC 4180: commas, quotes around what has some, "" for one inside.
class CsvReader {
 public:
  CsvReader(const std::string& text, std::string name) : text_(text), name_(std::move(name)) {}

  /// The fields of the next row that is not empty; none at the end.
  std::vector<std::string> next() {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) step();
    first_line_ = line_;
    std::vector<std::string> fields;
    while (at_ < text_.size()) {
      fields.push_back(text_[at_] == '"' ? quoted() : plain());
      if (at_ >= text_.size() || text_[at_] == '\n') break;
      if (text_[at_] != ',') fail("write a comma or a new line after a field in quotes");
      step();
      if (at_ >= text_.size() || text_[at_] == '\n') {
        fields.emplace_back();
        break;
      }
    }
    return fields;
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(fmt::format("{}:{}: {}", name_, first_line_, what));
  }

 private:
  void step() { line_ += text_[at_++] == '\n' ? 1 : 0; }
  std::string plain() {
    const std::size_t end = std::min(text_.find_first_of(",\n", at_), text_.size());
    std::string field = text_.substr(at_, end - at_);
    at_ = end;
    if (field.ends_with('\r')) field.pop_back();
    return field;
  }
  std::string quoted() {
    std::string field;
    step();
    while (at_ < text_.size()) {
      if (text_[at_] != '"') {
        field += text_[at_];
        step();
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        field += '"';
        at_ += 2;
      } else {
        ++at_;
        if (at_ < text_.size() && text_[at_] == '\r') ++at_;
        return field;
      }
    }
    fail("a quote is never closed: write another at its end");
  }

  const std::string& text_;
  std::string name_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
  std::int64_t first_line_ = 1;
};

std::vector<ListedImage> rows_of_csv(const fs::path& file) {
  const std::string text = whole_file(file);
  CsvReader reader(text, file.string());
  const std::vector<std::string> header = reader.next();
  const auto column = [&](const char* name) {
    const auto found = std::ranges::find(header, name);
    if (found == header.end())
      reader.fail(fmt::format("the first line names no column \"{}\": write path,label there", name));
    return static_cast<std::size_t>(found - header.begin());
  };
  const std::size_t path = column("path");
  const std::size_t label = column("label");
  std::vector<ListedImage> rows;
  for (auto fields = reader.next(); !fields.empty(); fields = reader.next()) {
    if (fields.size() != header.size())
      reader.fail(fmt::format("has {} fields, the first line {}", fields.size(), header.size()));
    rows.push_back({fields[path], fields[label]});
  }
  return rows;
}

std::vector<ListedImage> rows_of_json_lines(const fs::path& file) {
  std::istringstream in(whole_file(file));
  std::vector<ListedImage> rows;
  std::int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string place = fmt::format("{}:{}", file.string(), number);
    const auto json = JsonReader::parse(line, place);
    const JsonReader row(json, place);
    if (!row.has("path") || !row.has("label")) row.fail(R"(: write {"path": "…", "label": "…"})");
    const JsonReader label = row.field("label");
    rows.push_back({row.field("path").text(),
                    label.json().is_number_integer() ? fmt::to_string(label.integer(0, INT32_MAX)) : label.text()});
  }
  return rows;
}

bool is_number(const std::string& label) {
  return !label.empty() && label.size() < 10 && label.find_first_not_of("0123456789") == std::string::npos;
}

ImageList list_of(const fs::path& file, const std::vector<ListedImage>& rows,
                  const std::optional<std::vector<std::string>>& classes) {
  ImageList list{file.parent_path(), {}, {}, {}};
  const bool numbers = std::ranges::all_of(rows, [](const ListedImage& row) { return is_number(row.label); }) &&
                       (!classes || classes->empty());
  if (!numbers) {
    if (!classes)
      for (const ListedImage& row : rows) list.classes.push_back(row.label);
    std::ranges::sort(list.classes);
    list.classes.erase(std::unique(list.classes.begin(), list.classes.end()), list.classes.end());
    if (classes) list.classes = *classes;
  }
  for (const ListedImage& row : rows) {
    if (row.path.empty() || row.label.empty()) throw UserError(file.string() + " has a row without a path or a label");
    list.paths.push_back(row.path);
    list.labels.push_back(numbers ? std::stoll(row.label) : index_of(list.classes, row.label, file.string()));
  }
  return list;
}

ImageList list_any(const fs::path& path, const std::optional<std::vector<std::string>>& classes) {
  if (fs::is_directory(path)) return list_folder(path, classes);
  if (!fs::exists(path)) throw UserError("there is no " + path.string() + ": write a folder, a .csv or a .jsonl file");
  const std::string ending = lower_case(path.extension().string());
  if (ending == ".csv") return list_of(path, rows_of_csv(path), classes);
  if (ending == ".jsonl" || ending == ".json") return list_of(path, rows_of_json_lines(path), classes);
  throw UserError(path.string() + " is no folder: lists are .csv (path,label) or .jsonl files");
}

}  // namespace

Checksum ImageList::digest() const {
  ChecksumStream stream;
  const auto add = [&](const std::string& text) {
    stream.update(std::as_bytes(std::span(text.c_str(), text.size() + 1)));
  };
  for (const std::string& name : classes) add(name);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    add(paths[i]);
    add(fmt::to_string(labels[i]));
  }
  return stream.value();
}

ImageList list_images(const fs::path& path, const std::optional<std::vector<std::string>>& classes) {
  try {
    ImageList list = list_any(path, classes);
    if (list.paths.empty()) throw UserError(path.string() + " names no image");
    return list;
  } catch (const fs::filesystem_error& error) {
    throw UserError(path.string() + " cannot be listed: " + error.code().message() + ", at " + error.path1().string());
  }
}

}  // namespace onebatch
