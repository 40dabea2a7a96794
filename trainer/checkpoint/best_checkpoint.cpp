#include "trainer/checkpoint/best_checkpoint.hpp"

#include "trainer/io/durable_file.hpp"
#include "trainer/io/json_reader.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_best = "best";
constexpr const char* k_best_file = "best.json";

}  // namespace

fs::path free_name(const fs::path& wanted) {
  fs::path name = wanted;
  for (int number = 2; fs::exists(fs::symlink_status(name)); ++number)
    name = fmt::format("{}-{}", wanted.string(), number);
  return name;
}

std::optional<std::int64_t> step_of_checkpoint(const fs::path& folder) {
  const std::string name = folder.filename().string();
  constexpr std::string_view prefix = "step-";
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

void point_link_at(const fs::path& checkpoints, const std::string& name, const fs::path& target) {
  const fs::path partial = checkpoints / fmt::format(".{}.partial", name);
  const fs::path link = checkpoints / name;
  fs::remove_all(partial);
  fs::create_directory_symlink(target.filename(), partial);
  if (fs::is_directory(fs::symlink_status(link))) fs::rename(link, free_name(checkpoints / (name + ".copied")));
  fs::rename(partial, link);
  sync_folder(checkpoints);
}

void mark_best(const fs::path& checkpoints, const BestMark& mark) {
  const std::string folder = fmt::format("step-{}", mark.step);
  const nlohmann::ordered_json document = {
      {"step", mark.step}, {"metric", mark.metric}, {"value", mark.value}, {"checkpoint", folder}};
  point_link_at(checkpoints, k_best, checkpoints / folder);
  write_text_atomically(checkpoints / k_best_file, document.dump(2) + "\n");
}

void unmark_best(const fs::path& checkpoints) {
  if (!fs::is_symlink(fs::symlink_status(checkpoints / k_best))) return;
  fs::remove(checkpoints / k_best_file);
  fs::remove(checkpoints / k_best);
  sync_folder(checkpoints);
}

std::optional<std::int64_t> marked_best(const fs::path& checkpoints) {
  std::error_code error;
  const fs::path target = fs::read_symlink(checkpoints / k_best, error);
  return error ? std::nullopt : step_of_checkpoint(target);
}

std::optional<BestMark> read_mark(const fs::path& checkpoints) {
  const fs::path file = checkpoints / k_best_file;
  try {
    const nlohmann::json document = JsonReader::parse(read_text(file), file.string());
    const JsonReader reader(document, file.string() + ":");
    const BestMark mark{reader.field("step").integer(0, INT64_MAX), reader.field("metric").text(),
                        reader.field("value").number_at_least(std::numeric_limits<double>::lowest())};
    return marked_best(checkpoints) == mark.step ? std::optional(mark) : std::nullopt;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

}  // namespace onebatch
