// What `onebatch init` finds where it is sent: which kind of data, what a sample of it is, and which model can take it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace onebatch::launch {

/// A line of a configuration: key = value  # comment.
struct WrittenKey {
  std::string key;
  std::string value;  // as TOML
  std::string comment = {};
};

/// `text` as TOML.
std::string toml_text(const std::string& text);
std::string toml_text(const std::vector<std::string>& texts);

enum class SampleIs { image, numbers, tokens };

struct FoundData {
  std::string what;                    // in a line, for a person
  std::vector<WrittenKey> data;        // of [data]
  std::vector<WrittenKey> validation;  // of [data.validation]
  std::vector<WrittenKey> augment;     // of [data.augment]
  SampleIs sample = SampleIs::numbers;
  std::int64_t samples = 0;
  std::int64_t side = 0;                // image: the longer one, as the model gets it
  std::optional<std::int64_t> outputs;  // numbers that a sample's target has, where it is no class
  std::string why_exported;             // why no model of the program takes these samples; empty: one does
  std::vector<std::string> inputs;      // names, as an exported program's are to be in this order
  std::vector<std::string> notes;       // what else is to be said
};

/// Throws UserError that says what to do with what cannot be trained on as it is.
FoundData find_data(const std::filesystem::path& data);

// Those of which find_data() takes the first that knows what lies there; none: it is something else.
using MaybeFound = std::optional<FoundData>;
MaybeFound find_idx_folder(const std::filesystem::path& data);
MaybeFound find_images(const std::filesystem::path& data);
MaybeFound find_safetensors(const std::filesystem::path& data);
MaybeFound find_tokens(const std::filesystem::path& data);
MaybeFound find_text(const std::filesystem::path& data);  // last: a README.txt may lie beside anything
MaybeFound find_shards(const std::filesystem::path& data);

/// Of the letters A to Z.
std::string lower_case(std::string text);
/// A folder's files with this ending, or the file itself; sorted by name.
std::vector<std::filesystem::path> files_with(const std::filesystem::path& data, const std::string& ending);
/// Whether a file's or folder's name is one that people give to data for validation.
bool is_named_for_validation(const std::filesystem::path& path);
bool is_named_for_training(const std::filesystem::path& path);
/// Of a folder's files those that are not named for validation; all of them where none is left.
std::vector<std::filesystem::path> files_for_training(const std::vector<std::filesystem::path>& files);
/// Those that are named for validation: by "val" where some are, and "test", which people keep for the end, where not.
std::vector<std::filesystem::path> files_for_validation(std::vector<std::filesystem::path> files);
/// The keys that name where the data lie, split by those names; else a part of the training data validates.
void write_places(FoundData& found, const std::filesystem::path& data, const std::vector<std::filesystem::path>& files);
/// What an image's height and width say of the size that a model gets, and of its changes in training.
void write_image_size(FoundData& found, std::int64_t height, std::int64_t width);
/// `[data.validation] fraction`, where there are enough samples for it.
void validate_with_a_part(FoundData& found);

}  // namespace onebatch::launch
