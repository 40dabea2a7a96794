#include "trainer/checkpoint/checkpoint_folder.hpp"

#include "trainer/base/error.hpp"
#include "trainer/checkpoint/locked_folder.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/io/folder.hpp"
#include "trainer/io/json_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <system_error>

namespace onebatch {
namespace {

namespace fs = std::filesystem;

constexpr const char* k_manifest = "manifest.json";
constexpr const char* k_prefix = "step-";
constexpr const char* k_latest = "latest";
constexpr const char* k_aside = ".aside";  // behind a checkpoint's name: none that a run goes on from by itself

// What a file was to become.
struct WrittenFile {
  fs::path path;
  Checksum checksum;
};

WrittenFile write_manifest(const fs::path& folder, const std::vector<WrittenFile>& files) {
  nlohmann::ordered_json manifest = {{"checksum", "XXH3-128"}, {"files", nlohmann::ordered_json::object()}};
  for (const auto& [path, checksum] : files)
    manifest["files"][path.filename().string()] = {{"bytes", fs::file_size(path)}, {"checksum", to_text(checksum)}};
  return {folder / k_manifest, write_text_atomically(folder / k_manifest, manifest.dump(2) + "\n")};
}

// Memory, controller and disk can each alter what passes through them: then it is no checkpoint.
void check_written(const WrittenFile& file) {
  const Checksum found = checksum_of(file.path, ReadFrom::disk);
  if (found == file.checksum) return;
  throw std::runtime_error(file.path.string() + " is not what was written: read back it has the checksum " +
                           to_text(found) + ", not " + to_text(file.checksum) +
                           "; look at the disk and its file system. The checkpoints before it stand");
}

void fill(const fs::path& folder, const std::vector<CheckpointFile>& files) {
  std::vector<WrittenFile> written;
  written.reserve(files.size() + 1);
  for (const CheckpointFile& file : files) written.push_back({folder / file.name, file.write(folder / file.name)});
  written.push_back(write_manifest(folder, written));
  sync_folder(folder);
  for (const WrittenFile& file : written) check_written(file);
}

struct StepFolder {
  std::int64_t step;
  fs::path path;
};

// All that lies in a folder; nothing where there is none. One that cannot be read is not an empty one.
std::vector<fs::path> entries_if_any(const fs::path& folder) {
  std::vector<fs::path> entries;
  const std::error_code error =
      for_each_entry(folder, [&](const fs::directory_entry& entry) { entries.push_back(entry.path()); });
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw std::system_error(error, "cannot read the folder " + folder.string());
  return entries;
}

// Newest first.
std::vector<StepFolder> step_folders(const fs::path& checkpoints) {
  std::vector<StepFolder> folders;
  for (const fs::path& path : entries_if_any(checkpoints)) {
    const auto step = step_of_checkpoint(path);
    std::error_code not_there;  // a link may lead nowhere, or to itself
    if (step && fs::is_directory(path, not_there)) folders.push_back({*step, path});
  }
  std::sort(folders.begin(), folders.end(), [](const StepFolder& a, const StepFolder& b) { return a.step > b.step; });
  return folders;
}

// Removes the folder unless it was kept: what a failure leaves half done.
}  // namespace

class PartialFolder {
 public:
  explicit PartialFolder(fs::path path) : path_(std::move(path)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~PartialFolder() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(path_, ignored);
  }
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }
  void rename_to(const fs::path& final) {
    // An older checkpoint of the same step makes way only when its successor is whole; the next save removes what is
    // left of it.
    std::string name = ".";
    name.append(final.filename().string()).append(".old.partial");
    const fs::path old = final.parent_path() / name;
    fs::remove_all(old);
    if (fs::exists(final)) fs::rename(final, old);
    fs::rename(path_, final);
    kept_ = true;
    sync_folder(final.parent_path());
    std::error_code ignored;  // somebody may be reading it
    fs::remove_all(old, ignored);
  }
  bool rename_where_free(const fs::path& final) {
    if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, final.c_str(), RENAME_NOREPLACE) != 0) {
      if (errno == EEXIST || errno == ENOTEMPTY || fs::exists(final)) return false;
      fs::rename(path_, final);  // a file system that cannot say it in one word
    }
    kept_ = true;
    sync_folder(final.parent_path());
    return true;
  }

 private:
  fs::path path_;
  bool kept_ = false;
};

namespace {

void point_latest_at(const fs::path& checkpoints, const fs::path& folder) {
  point_link_at(checkpoints, k_latest, folder);
}

// What runs that were killed have left of a checkpoint.
void remove_partial_ones(const fs::path& checkpoints) {
  for (std::error_code ignored; const fs::path& folder : entries_if_any(checkpoints)) {
    const std::string name = folder.filename().string();
    if (name.starts_with(std::string(".") + k_prefix) && name.ends_with(".partial")) fs::remove_all(folder, ignored);
  }
}

std::string checksum_text(const fs::path& file) {
  try {
    return to_text(checksum_of(file));
  } catch (const std::system_error& error) {
    throw UserError(error.what());
  }
}

void check_file(const fs::path& file, const JsonReader& said) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw UserError(file.string() + " is missing, or no file");
  const std::uint64_t bytes = fs::file_size(file);
  const auto expected = static_cast<std::uint64_t>(said.field("bytes").integer(0, INT64_MAX));
  if (bytes != expected)
    throw UserError(fmt::format("{} is torn: it has {} bytes, the manifest says {}", file.string(), bytes, expected));
  if (checksum_text(file) != said.field("checksum").text())
    throw UserError(file.string() + " was altered: its checksum is not the manifest's");
}

// What has a checkpoint's name and is no folder; and the one that `latest` names, where there is nothing of that name.
std::vector<std::string> lost_ones(const fs::path& checkpoints) {
  std::vector<std::string> lost;
  std::error_code error;
  for (const fs::path& path : entries_if_any(checkpoints)) {
    if (step_of_checkpoint(path) && !fs::is_directory(path, error)) lost.push_back(path.string() + " is no folder");
  }
  const fs::path latest = checkpoints / k_latest;
  const fs::path named = fs::read_symlink(latest, error);
  if (!error && step_of_checkpoint(named) && !fs::exists(fs::symlink_status(checkpoints / named)))
    lost.push_back((checkpoints / named).string() + ", which " + latest.string() + " names, is not there");
  return lost;
}

std::string without_aside(const std::string& name) {
  return name.substr(0, name.find(k_aside));
}

// The name of one of these, whatever path leads to it; empty: it is none of them.
std::string name_among(const fs::path& checkpoints, const fs::path& checkpoint) {
  std::error_code error;
  for (const fs::path& path : {checkpoint, fs::canonical(checkpoint, error)}) {
    std::string name = path.filename().string();
    if (step_of_checkpoint(without_aside(name)) && fs::equivalent(path.parent_path(), checkpoints, error)) return name;
  }
  return {};
}

}  // namespace

void remove_all_but(const fs::path& checkpoints, const Retention& retention, std::int64_t newest) {
  if (retention.keep <= 0) return;
  const std::optional<std::int64_t> best = marked_best(checkpoints);
  std::int64_t kept = 0;
  std::error_code ignored;  // of one that somebody is reading: the next save tries again
  for (const StepFolder& folder : step_folders(checkpoints)) {
    const bool stays = (retention.keep_every > 0 && folder.step % retention.keep_every == 0) || folder.step == best;
    if (folder.step <= newest && ++kept > retention.keep && !stays) fs::remove_all(folder.path, ignored);
  }
}

PartialCheckpoint::PartialCheckpoint(const fs::path& checkpoints, std::int64_t step,
                                     const std::vector<CheckpointFile>& files)
    : checkpoints_(checkpoints), step_(step) {
  if (fs::create_directories(checkpoints)) sync_folder(checkpoints.has_parent_path() ? checkpoints.parent_path() : ".");
  remove_partial_ones(checkpoints);
  for (const StepFolder& folder : step_folders(checkpoints)) newest_before_ = std::max(newest_before_, folder.step);
  partial_ = std::make_unique<PartialFolder>(checkpoints / fmt::format(".{}{}.partial", k_prefix, step));
  fill(partial_->path(), files);
}

PartialCheckpoint::~PartialCheckpoint() = default;

fs::path PartialCheckpoint::publish(const Retention& retention) {
  fs::path folder = checkpoints_ / fmt::format("{}{}", k_prefix, step_);
  partial_->rename_to(folder);
  const StepFolder newest = step_folders(checkpoints_).front();
  point_latest_at(checkpoints_, newest.step > newest_before_ ? newest.path : folder);
  if (retention.mark) mark_best(checkpoints_, *retention.mark);
  remove_all_but(checkpoints_, retention, step_);
  return folder;
}

fs::path write_checkpoint(const fs::path& checkpoints, std::int64_t step, const std::vector<CheckpointFile>& files,
                          const Retention& retention) {
  return PartialCheckpoint(checkpoints, step, files).publish(retention);
}

Added add_checkpoint(const fs::path& checkpoints, std::int64_t step, const std::vector<CheckpointFile>& files,
                     const Retention& retention, const std::string& by,
                     const std::function<void()>& before_publishing) {
  const std::string name = fmt::format("{}{}", k_prefix, step);
  if (fs::create_directories(checkpoints)) sync_folder(checkpoints.has_parent_path() ? checkpoints.parent_path() : ".");
  const LockedFolder alone(checkpoints);
  if (!alone.locked()) return Added::by_another;
  if (const auto there = step_folders(checkpoints); !there.empty() && there.front().step >= step)
    return Added::was_there;
  PartialFolder partial(checkpoints / ("." + name + "." + by + ".partial"));
  fill(partial.path(), files);
  before_publishing();
  if (!partial.rename_where_free(checkpoints / name)) return Added::was_there;
  point_latest_at(checkpoints, checkpoints / name);
  remove_all_but(checkpoints, retention, step);
  return Added::now;
}

void check_checkpoint(const fs::path& checkpoint) {
  const fs::path file = checkpoint / k_manifest;
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    throw UserError(checkpoint.string() + " has no " + k_manifest + ": it is not a whole checkpoint");
  const nlohmann::json manifest = JsonReader::parse(read_text(file), file.string());
  const JsonReader files = JsonReader(manifest, file.string() + ":").field("files");
  if (!files.json().is_object() || files.json().empty()) files.fail("must name the checkpoint's files");
  for (const auto& [name, value] : files.json().items()) {
    if (fs::path(name).filename() != name) files.fail("names a file outside the checkpoint: " + name);
    check_file(checkpoint / name, JsonReader(value, file.string() + ": " + name));
  }
  for (const fs::path& path : entries_if_any(checkpoint)) {
    const std::string name = path.filename().string();
    if (name != k_manifest && !files.json().contains(name))
      files.fail("does not name " + name + ", which lies in the checkpoint");
  }
}

std::string checksum_in_manifest(const fs::path& checkpoint, const std::string& name) {
  const fs::path file = checkpoint / k_manifest;
  const nlohmann::json manifest = JsonReader::parse(read_text(file), file.string());
  const JsonReader files = JsonReader(manifest, file.string() + ":").field("files");
  return files.field(name.c_str()).field("checksum").text();
}

std::optional<FoundCheckpoint> find_latest_checkpoint(const fs::path& checkpoints) {
  FoundCheckpoint found;
  found.refused = lost_ones(checkpoints);
  for (const StepFolder& folder : step_folders(checkpoints)) {
    try {
      check_checkpoint(folder.path);
      found.folder = folder.path;
      found.step = folder.step;
      return found;
    } catch (const std::exception& error) {
      found.refused.emplace_back(error.what());
    }
  }
  if (found.refused.empty()) return std::nullopt;
  std::string reasons;
  for (const std::string& reason : found.refused) reasons += "\n  " + reason;
  throw UserError("no checkpoint in " + checkpoints.string() + " is whole:" + reasons +
                  "\nbegin a new run without --resume (checkpoint.resume = \"never\")");
}

fs::path placed_among(const fs::path& checkpoints, const fs::path& checkpoint, std::int64_t step) {
  const std::string name = fmt::format("{}{}", k_prefix, step);
  if (without_aside(name_among(checkpoints, checkpoint)) == name) return checkpoint;
  fs::path place = checkpoints / name;
  std::error_code error;  // there may be none, and no links on that file system
  const bool is_there = fs::is_regular_file(place / k_manifest, error);
  if (is_there && read_text(place / k_manifest) == read_text(checkpoint / k_manifest)) return place;
  PartialFolder partial(checkpoints / ("." + name + ".partial"));
  for (const fs::path& file : entries_if_any(checkpoint)) {
    fs::create_hard_link(fs::canonical(file), partial.path() / file.filename(), error);
    if (error) copy_durably(file, partial.path() / file.filename());
  }
  check_checkpoint(partial.path());
  sync_folder(partial.path());
  place = free_name(checkpoints / (name + k_aside));
  partial.rename_to(place);
  return place;
}

std::vector<std::string> make_newest(const fs::path& checkpoints, const fs::path& checkpoint) {
  const std::string name = name_among(checkpoints, checkpoint);
  const std::string right = without_aside(name);
  const auto step = step_of_checkpoint(right);
  if (!step) return {};
  std::vector<std::string> moved;
  for (const StepFolder& other : step_folders(checkpoints)) {
    if (other.step < *step || other.path.filename() == name) continue;
    const fs::path aside = free_name(other.path.string() + k_aside);
    fs::rename(other.path, aside);
    moved.insert(moved.begin(), aside.filename().string());
  }
  if (right != name) fs::rename(checkpoints / name, checkpoints / right);
  if (!moved.empty() || right != name) sync_folder(checkpoints);
  std::error_code error;
  if (fs::read_symlink(checkpoints / k_latest, error) != right) point_latest_at(checkpoints, right);
  return moved;
}

}  // namespace onebatch
