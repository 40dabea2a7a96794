#include "launch/check_command.hpp"

#include "launch/count_text.hpp"
#include "launch/standard_streams.hpp"
#include "launch/written_files.hpp"
#include "trainer/base/error.hpp"
#include "trainer/models/exported_check.hpp"
#include "trainer/models/exported_description.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>

namespace onebatch::launch {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t k_most_lines = 8;  // of one kind of thing: all is to be seen at once
constexpr std::size_t k_most_names = 4;

std::string several(std::int64_t number, const std::string& thing) {
  return fmt::format("{} {}{}", count_text(number), thing, number == 1 ? "" : "s");
}

// The first ones and the last.
std::string short_list(const std::vector<std::string>& names) {
  if (names.size() <= k_most_names) return fmt::format("{}", fmt::join(names, ", "));
  return fmt::format("{}, …, {}", fmt::join(std::span(names).first(k_most_names - 1), ", "), names.back());
}

using Lines = std::vector<std::string>;

// A word at the margin, and lines beside it.
std::string block(const char* word, const Lines& lines) {
  std::string text;
  const std::size_t shown = lines.size() > k_most_lines ? k_most_lines - 1 : lines.size();
  for (std::size_t i = 0; i < shown; ++i) text += fmt::format("  {:<10}{}\n", i == 0 ? word : "", lines[i]);
  if (shown < lines.size())
    text += fmt::format("  {:<10}and {} more (--json FILE has all)\n", "", lines.size() - shown);
  return text;
}

Lines tensor_lines(const std::vector<DescribedTensor>& tensors) {
  std::size_t longest = 0;
  for (const DescribedTensor& tensor : tensors) longest = std::max(longest, tensor.name.size());
  Lines lines;
  for (const DescribedTensor& tensor : tensors)
    lines.push_back(
        fmt::format("{:<{}}  {:<8} [{}]", tensor.name, longest, tensor.type, fmt::join(tensor.sizes, ", ")));
  return lines;
}

Lines size_lines(const std::vector<DescribedSize>& sizes) {
  Lines lines;
  for (const DescribedSize& size : sizes) {
    lines.push_back(size.most ? fmt::format("{}: {} to {}", size.name, size.least, *size.most)
                              : fmt::format("{}: {} and more", size.name, size.least));
  }
  return lines;
}

Lines state_lines(const ProgramDescription& program) {
  Lines lines = {fmt::format("{} in {}, {}", several(program.num_elements, "parameter"),
                             several(program.num_parameters, "tensor"), program.type)};
  if (program.num_trained_elements < program.num_elements)
    lines.back() += fmt::format("; {} of them are trained", count_text(program.num_trained_elements));
  if (!program.batch_norm_layers.empty())
    lines.push_back(fmt::format("{}: {}",
                                several(static_cast<std::int64_t>(program.batch_norm_layers.size()), "BatchNorm layer"),
                                short_list(program.batch_norm_layers)));
  return lines;
}

Lines random_lines(const ProgramDescription& program) {
  Lines lines;
  for (const DescribedRandomness& one : program.random) {
    lines.push_back(fmt::format("{} × {}, {}", one.calls, one.op,
                                one.drawn_by == DrawnBy::sample
                                    ? "by sample: the same whatever the plan"
                                    : "from each rank's generator: another plan, other numbers"));
  }
  if (lines.empty()) lines.emplace_back("nothing");
  return lines;
}

std::string text_of(const ProgramDescription& program, const std::string& file) {
  std::string text = fmt::format("{}: a program of torch.export, which can be trained\n", file);
  text += block("takes", tensor_lines(program.inputs));
  text += block("returns", tensor_lines(program.outputs));
  if (program.outputs.size() > 1)
    text += block("", {fmt::format("the loss takes \"{}\"; model.output names another", program.output)});
  text += block("sizes", size_lines(program.sizes));
  text += block("holds", state_lines(program));
  text += block("random", random_lines(program));
  if (!program.changed_buffers.empty())
    text += block("changes", {short_list(program.changed_buffers) +
                              " in each forward: train refuses what would depend on the micro-batches"});
  return text + fmt::format("to train it write under [model]: kind = \"exported\", path = \"{}\"\n", file);
}

Json json_of(const std::vector<DescribedTensor>& tensors) {
  Json list = Json::array();
  for (const DescribedTensor& tensor : tensors)
    list.push_back({{"name", tensor.name}, {"type", tensor.type}, {"sizes", tensor.sizes}});
  return list;
}

std::string document_of(const ProgramDescription& program, const std::string& file) {
  Json document = {{"file", file},
                   {"inputs", json_of(program.inputs)},
                   {"outputs", json_of(program.outputs)},
                   {"output", program.output},
                   {"sizes", Json::array()},
                   {"type", program.type},
                   {"parameter_tensors", program.num_parameters},
                   {"parameters", program.num_elements},
                   {"trained_parameters", program.num_trained_elements},
                   {"batch_norm_layers", program.batch_norm_layers},
                   {"random", Json::array()},
                   {"changed_buffers", program.changed_buffers}};
  for (const DescribedSize& size : program.sizes)
    document["sizes"].push_back(
        {{"name", size.name}, {"least", size.least}, {"most", size.most ? Json(*size.most) : Json()}});
  for (const DescribedRandomness& one : program.random)
    document["random"].push_back({{"operator", one.op},
                                  {"calls", one.calls},
                                  {"drawn_by", one.drawn_by == DrawnBy::sample ? "sample" : "generator"}});
  return document.dump(2);
}

std::string describe(const Arguments& arguments) {
  const ProgramDescription program = describe_exported(arguments.program_file);
  print_out(text_of(program, arguments.program_file));
  return document_of(program, arguments.program_file);
}

std::string run_once(const Arguments& arguments) {
  check_can_be_written("--save", arguments.save_file);
  check_is_not_read("--save", arguments.save_file, {arguments.program_file, arguments.inputs_file});
  const ProgramCheck check{.program = arguments.program_file,
                           .inputs = arguments.inputs_file,
                           .phase = arguments.phase == "evaluation" ? CheckedPhase::evaluation : CheckedPhase::training,
                           .loss = arguments.own_loss ? CheckedLoss::programs_own : CheckedLoss::squares,
                           .save = arguments.save_file,
                           .device = arguments.check_device == "cuda" ? DeviceChoice::cuda : DeviceChoice::cpu};
  check_exported(check);
  if (!arguments.quiet) print_out(fmt::format("what {} computes is in {}\n", check.program, arguments.save_file));
  const Json document = {{"file", check.program},
                         {"inputs", arguments.inputs_file},
                         {"phase", arguments.phase},
                         {"device", arguments.check_device},
                         {"result", arguments.save_file}};
  return document.dump(2);
}

}  // namespace

std::string check_program(const Arguments& arguments) {
  return arguments.inputs_file.empty() ? describe(arguments) : run_once(arguments);
}

}  // namespace onebatch::launch
