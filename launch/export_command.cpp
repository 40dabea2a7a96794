#include "launch/export_command.hpp"

#include "launch/config_loader.hpp"
#include "launch/plan_command.hpp"
#include "launch/standard_streams.hpp"
#include "launch/weights_option.hpp"
#include "launch/written_files.hpp"
#include "trainer/base/error.hpp"
#include "trainer/checkpoint/export_model.hpp"
#include "trainer/checkpoint/named_checkpoint.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

enum class Format { safetensors, program };

Format format_of(const fs::path& file) {
  if (file.extension() == ".safetensors") return Format::safetensors;
  if (file.extension() == ".pt2") return Format::program;
  throw UserError(
      fmt::format("--to {}: write a name that ends in .safetensors, for the weights alone, or in .pt2, for "
                  "the exported program that was trained",
                  file.string()));
}

bool is_configuration(const std::string& source) {
  return fs::path(source).extension() == ".toml";
}

// Where the checkpoint is looked for.
fs::path place_of(const Arguments& arguments) {
  const std::string& source = arguments.source;
  if (is_configuration(source)) {
    if (arguments.checkpoint.empty())
      throw UserError(
          fmt::format("{} says how to train, not what was trained: add --checkpoint RUN, as in "
                      "--checkpoint runs/{}, or write the run's folder in its place",
                      source, fs::path(source).stem().string()));
    return arguments.checkpoint;
  }
  if (!arguments.checkpoint.empty() || !arguments.assignments.empty())
    throw UserError(
        fmt::format("--checkpoint and --set go with a configuration: write onebatch export CONFIG.toml "
                    "--checkpoint {} --to {}, or leave them out",
                    arguments.checkpoint.empty() ? source : arguments.checkpoint, arguments.target_file));
  return source;
}

FoundCheckpoint find_checkpoint(const Arguments& arguments) {
  const fs::path place = place_of(arguments);
  if (!fs::is_directory(place))
    throw UserError(fmt::format("{} is no folder: give a run's folder, as in runs/demo, or one of its checkpoints",
                                place.string()));
  const auto found = find_named_checkpoint(place);
  if (!found) throw UserError(no_checkpoint_at(place));
  if (found->refused.empty()) return *found;
  std::string newer;
  for (const std::string& reason : found->refused) newer += "\n  " + reason;
  const std::string said = fmt::format("asked for the newest checkpoint{}\nbut took {}", newer, found->folder.string());
  if (arguments.strict) throw std::runtime_error(said + " (refused by --strict)");
  print_error(fmt::format("onebatch: fallback: {}\n", said));
  return *found;
}

// The run's own, whatever has become of the file that it was started with.
fs::path place_of_configuration(const Arguments& arguments, const fs::path& checkpoint) {
  if (is_configuration(arguments.source)) return arguments.source;
  return fs::canonical(checkpoint).parent_path().parent_path() / "config.toml";
}

// Weights alone are written without a configuration, too: then there is nothing to compare with.
void check_target(const Arguments& arguments, const fs::path& checkpoint) {
  const fs::path target = arguments.target_file;
  const fs::path file = place_of_configuration(arguments, checkpoint);
  if (fs::is_regular_file(file)) {
    const LoadedConfig loaded = load_config(read_file(file.string()), file.string(), arguments.assignments);
    check_is_not_read("--to", target, files_read(loaded.configuration), "by the run");
  }
  if (fs::exists(fs::symlink_status(target)) && !arguments.overwrite)
    throw UserError(
        fmt::format("--to {} is there already: add --overwrite to replace it, or write another name", target.string()));
}

std::string configuration_file(const Arguments& arguments, const fs::path& checkpoint) {
  const fs::path file = place_of_configuration(arguments, checkpoint);
  if (!is_configuration(arguments.source) && !fs::is_regular_file(file))
    throw UserError(
        fmt::format("{} is not there, which says what program was trained: write onebatch export CONFIG.toml "
                    "--checkpoint {} --to {}",
                    file.string(), checkpoint.string(), arguments.target_file));
  return file.string();
}

std::string program_of(const Arguments& arguments, const fs::path& checkpoint) {
  const std::string file = configuration_file(arguments, checkpoint);
  const LoadedConfig loaded = load_config(read_file(file), file, arguments.assignments);
  if (!loaded.mistakes.empty()) throw UserError(file + " cannot be used:\n" + mistakes_text(loaded.mistakes));
  const ModelConfiguration& model = loaded.configuration.model;
  if (model.kind != "exported")
    throw UserError(fmt::format(
        "--to {}: the run's model.kind is \"{}\", and only an \"exported\" one has a program to "
        "put its weights into: write --to {}",
        arguments.target_file, model.kind, fs::path(arguments.target_file).replace_extension(".safetensors").string()));
  if (!fs::is_regular_file(model.path))
    throw UserError(
        fmt::format("model.path = \"{}\" of {} is not there, seen from {}: start from where the run was "
                    "started, or write onebatch export CONFIG.toml --set model.path=FILE --checkpoint {} "
                    "--to {}",
                    model.path, file, fs::current_path().string(), checkpoint.string(), arguments.target_file));
  return model.path;
}

}  // namespace

std::string export_model(const Arguments& arguments) {
  const Format format = format_of(arguments.target_file);
  check_can_be_written("--to", arguments.target_file);
  const FoundCheckpoint found = find_checkpoint(arguments);
  check_target(arguments, found.folder);
  const WeightsChoice choice = weights_choice(arguments.weights);
  nlohmann::ordered_json document = {
      {"file", arguments.target_file}, {"checkpoint", found.folder.string()}, {"step", found.step}};
  HasWeights weights = HasWeights::raw;
  std::string more;
  if (format == Format::safetensors) {
    weights = export_weights(found.folder, arguments.target_file, choice);
  } else {
    const std::string program = program_of(arguments, found.folder);
    const ExportedWeights done = export_program(found.folder, program, arguments.target_file, choice);
    weights = done.weights;
    document.update({{"program", program}, {"tensors", done.tensors}, {"converted", done.converted}});
    more = fmt::format(", in the program of {}", program);
    if (done.converted > 0)
      more += fmt::format("; {} of {} tensors had another type in the run, and have the program's", done.converted,
                          done.tensors);
  }
  const bool averaged = weights == HasWeights::averaged;
  document["weights"] = averaged ? "ema" : "raw";
  if (!arguments.quiet)
    print_out(fmt::format("{} has the {}weights of step {}, from {}{}\n", arguments.target_file,
                          averaged ? "averaged " : "", found.step, found.folder.string(), more));
  return document.dump(2);
}

}  // namespace onebatch::launch
