#include "launch/init/init_command.hpp"

#include "launch/config_loader.hpp"
#include "launch/init/written_configuration.hpp"
#include "launch/shell_words.hpp"
#include "launch/standard_streams.hpp"
#include "launch/written_files.hpp"
#include "trainer/base/error.hpp"
#include "trainer/io/durable_file.hpp"
#include "trainer/models/exported_description.hpp"
#include "trainer/run/built_in_kinds.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <stdexcept>

namespace onebatch::launch {
namespace {

namespace fs = std::filesystem;

// The digits, from the folder of the source or from the installed package; else made-up images.
FoundData found_without_data() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const fs::path& folder :
       {fs::path("data/digits"), program / "../share/onebatch/data/digits", program / "../data/digits"}) {
    if (!fs::is_directory(folder, none)) continue;
    if (auto found = find_idx_folder(folder == "data/digits" ? folder : fs::weakly_canonical(folder))) return *found;
  }
  FoundData made_up;
  made_up.what = "1,000 made-up images, to try things out before the data are here";
  made_up.sample = SampleIs::image;
  made_up.samples = 1000;
  made_up.side = 32;
  made_up.data = {{"kind", "\"synthetic\"", "random pixels and labels"},
                  {"shape", "[3, 32, 32]"},
                  {"num_classes", "10"},
                  {"size", "1000", "samples"}};
  return made_up;
}

// "photos/train/" -> photos.toml
fs::path file_for(const fs::path& data) {
  if (data.empty()) return "onebatch.toml";
  fs::path named = fs::weakly_canonical(data);
  if (is_named_for_training(named) && named.has_parent_path() && fs::is_directory(data)) named = named.parent_path();
  const fs::path name = fs::is_directory(data) ? named.filename() : named.stem();
  return name.empty() ? "onebatch.toml" : name.string() + ".toml";
}

fs::path file_to_write(const Arguments& arguments) {
  const fs::path file =
      arguments.written_file.empty() ? file_for(arguments.data_path) : fs::path(arguments.written_file);
  check_can_be_written("--out", file, Output::configuration);
  if (file.extension() != ".toml")
    throw UserError(fmt::format("--out {}: write a name that ends in .toml", file.string()));
  if (fs::exists(fs::symlink_status(file)) && !arguments.overwrite)
    throw UserError(
        fmt::format("{} is there already, and stays as it is: add --force to replace it, or write --out OTHER.toml",
                    file.string()));
  return file;
}

bool is_number(const std::string& size) {
  return !size.empty() && size.find_first_not_of("0123456789") == std::string::npos;
}

bool is_scalar(const DescribedTensor& tensor) {
  return tensor.sizes.empty();
}

// As the program takes them, where it calls them what the data do. Both may be of one shape and type: nothing else
// would tell that they are changed for each other.
void order_inputs(FoundData& found, const ProgramDescription& program) {
  if (found.inputs.size() < 2) return;
  std::vector<std::string> ordered;
  for (const DescribedTensor& input : program.inputs) {
    if (std::ranges::find(found.inputs, input.name) != found.inputs.end()) ordered.push_back(input.name);
  }
  if (ordered.size() != found.inputs.size()) {
    found.notes.emplace_back(
        "the program calls its inputs otherwise than the data do: put data.inputs into its order, which onebatch check "
        "shows");
    return;
  }
  found.inputs = ordered;
  for (WrittenKey& key : found.data) {
    if (key.key == "inputs") key.value = toml_text(ordered);
  }
}

// That which was named, else the one that lies beside the data.
GivenModel model_for(const Arguments& arguments, FoundData& found) {
  GivenModel model{arguments.model_file};
  if (model.path.empty() && !found.why_exported.empty() && !arguments.data_path.empty()) {
    const fs::path data = arguments.data_path;
    const auto beside = files_with(fs::is_directory(data)       ? data
                                   : data.parent_path().empty() ? "."
                                                                : data.parent_path(),
                                   ".pt2");
    if (beside.size() == 1) model.path = beside.front().string();
  }
  if (model.path.empty()) {
    if (found.inputs.size() > 1)
      found.notes.emplace_back(
          "data.inputs has the inputs by their names: put them into the order of the model's forward");
    return model;
  }
  const ProgramDescription program = describe_exported(model.path);
  model.has_own_loss = program.outputs.size() == 2 && is_scalar(program.outputs[0]) && is_scalar(program.outputs[1]);
  if (const auto& sizes = program.inputs.front().sizes; sizes.size() == 2 && is_number(sizes[1]))
    model.length = sizes[1];
  const std::size_t given = std::max<std::size_t>(1, found.inputs.size()) + (model.has_own_loss ? 1 : 0);
  if (program.inputs.size() != given)
    throw UserError(fmt::format("{} takes {} tensor(s), and a sample has {} for it: onebatch check {} shows them",
                                model.path, program.inputs.size(), given, model.path));
  order_inputs(found, program);
  return model;
}

// What is written is tried as train would try it: a mistake in it is this program's own.
void check_written(const std::string& text, const std::string& name) {
  const LoadedConfig loaded = load_config(text, name, {});
  auto mistakes = loaded.mistakes;
  for (auto& mistake : check_contradictions(loaded, name, 0)) mistakes.push_back(std::move(mistake));
  if (!mistakes.empty())
    throw std::logic_error("init would have written what train refuses:\n" + mistakes_text(mistakes));
}

std::vector<std::string> next_commands(const FoundData& found, const GivenModel& model, const std::string& file) {
  std::vector<std::string> next;
  if (model.path.empty() && !found.why_exported.empty())
    next.emplace_back("python -m onebatch export model.py:build --out model.pt2   # your model; docs/python.md");
  next.push_back(fmt::format("onebatch data {}", file));
  next.push_back(fmt::format("onebatch launch train {}", file));
  return next;
}

}  // namespace

std::string init(const Arguments& arguments) {
  register_built_in_kinds();
  const fs::path file = file_to_write(arguments);
  FoundData found = arguments.data_path.empty() ? found_without_data() : find_data(arguments.data_path);
  const GivenModel model = model_for(arguments, found);
  for (WrittenKey& key : found.data) {
    if (key.key == "block_size" && !model.length.empty())
      key = {"block_size", model.length, "tokens of a sample, as the model takes them"};
  }
  const std::string text = written_configuration(found, model, quoted_for_shell(file.string()));
  check_written(text, file.string());
  write_text_atomically(file, text);
  const std::vector<std::string> next = next_commands(found, model, quoted_for_shell(file.string()));
  if (!arguments.quiet) {
    print_out(fmt::format("found  {}\nmodel  {}\n", found.what, model_words(found, model)));
    for (const std::string& note : found.notes) print_out(fmt::format("note   {}\n", note));
    print_out(fmt::format("wrote  {}\nnext   {}\n", file.string(), fmt::join(next, "\n       ")));
  }
  const nlohmann::ordered_json document = {{"file", file.string()},    {"found", found.what},
                                           {"samples", found.samples}, {"model", model_words(found, model)},
                                           {"notes", found.notes},     {"next", next}};
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace onebatch::launch
