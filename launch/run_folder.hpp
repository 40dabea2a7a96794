// The folder that holds everything about a run. Never overwritten in silence, never written by two at once.
#pragma once

#include "launch/config_loader.hpp"
#include "launch/run_lock.hpp"

namespace onebatch::launch {

/// What a folder says about its run; every start reads it.
enum class FolderState {
  absent,
  unused,           // empty, or what a start has left that measured nothing: a configuration, a lock
  foreign,          // somebody else's
  begun,            // something was measured, there is no checkpoint
  has_checkpoints,  // and the run is not complete
  complete
};

FolderState state_of(const std::filesystem::path& folder);

/// What a checkpoint is that checkpoint.resume names: where every start begins; or, with --resume, where the first
/// does, and those after it go on.
enum class Named { every_start, first_start };

/// A run's own folder, locked.
class RunFolder {
 public:
  /// A new run takes output_dir/name, or the next free name-2, name-3, … With checkpoint.resume = "auto" a run of that
  /// name goes on: one of the same configuration, else the newest; one that is complete only where none of the same
  /// configuration is left to go on with. Where there is none, a new one begins. With a checkpoint's path its run goes
  /// on where it is of this name; else a new one begins from it; with Named::first_start one that has begun from it
  /// goes on. Nothing is written but the lock. Throws UserError where the folder is somebody else's, or the run is held
  /// by another process.
  static RunFolder claim(const LoadedConfig& loaded, const std::string& default_name, Named named = Named::every_start);

  /// Removes the folder again where nothing was measured.
  ~RunFolder();
  RunFolder(RunFolder&&) = default;
  RunFolder& operator=(RunFolder&&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// What a user should know: another name was taken, a run goes on and with which other keys. Lines; may be empty.
  [[nodiscard]] const std::string& said() const { return said_; }
  /// It has a checkpoint of its own to go on from, after the one that checkpoint.resume names.
  [[nodiscard]] bool has_begun_from_named() const { return has_begun_from_named_; }

  /// All checks have passed: writes config.toml. A complete run that has more to do is complete no longer.
  void begin() const;
  /// The run is done: its document makes it complete, where it was not, or has begun to be no longer.
  void complete(const std::string& result) const;

 private:
  RunFolder(LoadedConfig loaded, std::filesystem::path path, RunLock lock, std::string said);
  friend class RunFolderSearch;

  LoadedConfig loaded_;  // named as its folder would be
  std::filesystem::path path_;
  RunLock lock_;
  std::string said_;
  bool has_begun_from_named_ = false;
};

}  // namespace onebatch::launch
