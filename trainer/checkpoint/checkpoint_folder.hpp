// checkpoints/step-N: written whole or not at all, checked when read. See Note [Nothing is lost]. No LibTorch here.
#pragma once

#include "trainer/checkpoint/best_checkpoint.hpp"
#include "trainer/io/safetensors.hpp"

#include <functional>
#include <memory>
#include <optional>

namespace onebatch {

/// What one checkpoint folder holds beside its tensors.
struct CheckpointFile {
  std::string name;                                                  // "model.safetensors"
  std::function<Checksum(const std::filesystem::path& file)> write;  // and syncs; the checksum of what it was to write
};

/// Which checkpoints stay when a newer one is published: the best one in any case.
struct Retention {
  std::int64_t keep = 2;              // the newest; 0 = all
  std::int64_t keep_every = 0;        // besides them, those of a step that is a multiple of it; 0 = none
  std::optional<BestMark> mark = {};  // the published one is the best so far
};

/// Removes those that are not to stay, of `newest` and before.
void remove_all_but(const std::filesystem::path& checkpoints, const Retention& retention, std::int64_t newest);

/// A checkpoint that is written and synced, but not there yet: others may have to agree first.
class PartialCheckpoint {
 public:
  /// Writes every file into checkpoints/.step-N.partial and a manifest with size and XXH3 checksum of each, syncs files
  /// and folder, and reads all files back from the disk: one that is not what was written is an error. On any error the
  /// partial folder is removed and the older checkpoints stand; the error names the file.
  PartialCheckpoint(const std::filesystem::path& checkpoints, std::int64_t step,
                    const std::vector<CheckpointFile>& files);
  /// Removes it unless it was published.
  ~PartialCheckpoint();
  PartialCheckpoint(const PartialCheckpoint&) = delete;
  PartialCheckpoint& operator=(const PartialCheckpoint&) = delete;

  /// Renames it to checkpoints/step-N, points `latest` at it, or at a newer one that was added meanwhile, marks it
  /// where it is the best, then removes the older ones that are not to stay, as far as they can be. Returns the
  /// folder.
  std::filesystem::path publish(const Retention& retention);

 private:
  std::filesystem::path checkpoints_;
  std::int64_t step_;
  std::int64_t newest_before_ = -1;  // of those that were there already
  std::unique_ptr<class PartialFolder> partial_;
};

/// Both at once.
std::filesystem::path write_checkpoint(const std::filesystem::path& checkpoints, std::int64_t step,
                                       const std::vector<CheckpointFile>& files, const Retention& retention);

enum class Added { now, was_there, by_another };

/// Both at once, from a process beside which others of its run may still write: under a name of its own, which has `by`
/// in it. `before_publishing` may throw: then nothing is there. Where that step or a later one is there already it
/// stays the newest, and where another process is adding one at this moment nothing is done.
Added add_checkpoint(const std::filesystem::path& checkpoints, std::int64_t step,
                     const std::vector<CheckpointFile>& files, const Retention& retention, const std::string& by,
                     const std::function<void()>& before_publishing);

/// Throws UserError naming the first file that is missing, torn or altered.
void check_checkpoint(const std::filesystem::path& checkpoint);

/// What the manifest says of a file, as to_text() writes it. Throws UserError.
std::string checksum_in_manifest(const std::filesystem::path& checkpoint, const std::string& name);

struct FoundCheckpoint {
  std::filesystem::path folder;
  std::int64_t step = 0;
  std::vector<std::string> refused;  // newer ones that were torn, altered or gone, each with the reason
};

/// The newest whole checkpoint; none if there is no folder of one. Throws UserError where there are some, but none is
/// whole. Partial folders of a run that died are ignored.
std::optional<FoundCheckpoint> find_latest_checkpoint(const std::filesystem::path& checkpoints);

/// Where the checkpoint of that step, from which a run goes on, lies among these: itself where it is one of them, by
/// whatever path, or the one that it is a copy of. Another copy gets a place there first, as one that is aside.
std::filesystem::path placed_among(const std::filesystem::path& checkpoints, const std::filesystem::path& checkpoint,
                                   std::int64_t step);

/// A run goes on from that one. Where it is one of these checkpoints, those of later steps, which are of a course that
/// the run has left, or torn, become step-N.aside, so that it stays the newest, and `latest` leads to it; one that was
/// aside itself is called step-N again. Returns the new names.
std::vector<std::string> make_newest(const std::filesystem::path& checkpoints, const std::filesystem::path& checkpoint);

}  // namespace onebatch
