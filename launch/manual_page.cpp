#include "launch/manual_page.hpp"

#include "launch/completion.hpp"
#include "trainer/base/version.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>

namespace onebatch::launch {
namespace {

struct Meant {
  const char* word;
  const char* text;
};

// docs/exit_codes.md has them in full.
constexpr Meant k_exit_codes[] = {
    {"0", "done"},
    {"1", "failed: an error that is none of the others; doctor: something is broken"},
    {"2", "the user's mistake: configuration, data, arguments; the message says what to write instead"},
    {"3", "not even the least micro-batch fits on a rank's device; verify: rank 0's host has too little memory"},
    {"4", "another rank failed, or a collective took longer than comm.timeout_seconds"},
    {"5", "verify found a difference, or cannot judge in the run's precision"},
    {"75", "stopped by a signal after saving: the same command with --resume goes on"}};

constexpr Meant k_variables[] = {
    {"CUDA_VISIBLE_DEVICES", "which GPUs ranks may take"},
    {"OMP_NUM_THREADS", "threads of a rank; else its part of the processors"},
    {"NCCL_SOCKET_IFNAME", "the network interfaces that NCCL takes"},
    {"ONEBATCH_PYTHON", "the Python that compiles programs; else LibTorch's own, that of VIRTUAL_ENV, python3 of PATH"},
    {"XDG_CACHE_HOME",
     "where the probe keeps its answers, and shards' indices and compiled programs are kept, in onebatch; else "
     "~/.cache"},
    {"TMPDIR", "where launch and mpirun keep what they need while they run"}};

constexpr Meant k_files[] = {
    {"runs/NAME", "a run's folder: its resolved configuration, profile, plan, metrics and checkpoints"},
    {"runs/NAME/checkpoints/step-N", "a checkpoint, whole or not there"}};

constexpr Meant k_examples[] = {
    {"onebatch init photos/", "write photos.toml for a folder of class folders"},
    {"onebatch launch train photos.toml", "train on all GPUs of this machine; Ctrl-C saves"},
    {"onebatch train photos.toml --set optimizer.lr=3e-4 --resume", "go on, on one rank, at another rate"},
    {"onebatch launch --hosts a:4,b:2 doctor", "see whether six ranks on two machines can work together"}};

// A hyphen that is to be copied, a backslash, and a line that begins with a dot or a quote mean something else there.
std::string roff(std::string_view text) {
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (i == 0 && (letter == '.' || letter == '\'')) escaped += "\\&";
    if (letter == '\\')
      escaped += "\\e";
    else if (letter == '-')
      escaped += "\\-";
    else
      escaped += letter;
  }
  return escaped;
}

std::string paragraph(const std::string& bold, const std::string& rest, const std::string& text) {
  return fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(bold), rest, roff(text));
}

template <std::size_t count>
std::string list(const char* title, const Meant (&entries)[count]) {
  std::string text = fmt::format(".SH {}\n", title);
  for (const auto& [word, meaning] : entries) text += paragraph(word, "", meaning);
  return text;
}

std::string usage(const DescribedCommand& command) {
  std::string text;
  bool options = false;
  for (const DescribedOption& option : command.options) {
    if (!option.is_argument)
      options = true;
    else
      text += option.is_needed ? fmt::format(" \\fI{}\\fR", roff(option.names.front()))
                               : fmt::format(" [\\fI{}\\fR]", roff(option.names.front()));
  }
  if (options) text += " [\\fIOPTION\\fR]...";
  return text + (command.runs_another ? " \\fICOMMAND\\fR ..." : "");
}

std::string about(const DescribedOption& option) {
  std::string text = option.description;
  if (!option.values.empty()) text += fmt::format(": {}", fmt::join(option.values, ", "));
  if (!option.standard.empty()) text += fmt::format(" (else {})", option.standard);
  return text;
}

std::string command_text(const DescribedCommand& command) {
  std::string text =
      fmt::format(".SS onebatch {}{}\n{}\n", roff(command.name), usage(command), roff(command.description));
  for (const DescribedOption& option : command.options) {
    if (option.names.back() == "--help") continue;
    text += paragraph(fmt::format("{}", fmt::join(option.names, ", ")),
                      option.takes_value && !option.is_argument ? " \\fIVALUE\\fR" : "", about(option));
  }
  return text;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::string text = fmt::format(
      ".\\\" Made by: onebatch manual\n"
      ".TH ONEBATCH 1 \"\" \"onebatch {}\" \"User commands\"\n"
      ".SH NAME\nonebatch \\- any mix of GPUs behaves like one big GPU\n"
      ".SH SYNOPSIS\n.B onebatch\n\\fICOMMAND\\fR [\\fIOPTION\\fR]...\n.br\n"
      ".B onebatch launch\n[\\fB\\-np\\fR \\fIN\\fR] [\\fB\\-\\-hosts\\fR \\fIa:2,b:4\\fR] \\fICOMMAND\\fR ...\n"
      ".SH DESCRIPTION\n"
      "One rank for each device, one global batch, one gradient: each rank measures its device, a planner gives it "
      "micro\\-batches of "
      "its own, and the summed gradient is that of a single batch of batch.global_batch_size samples. A configuration "
      "is a TOML file; "
      "\\fBonebatch info \\-\\-keys\\fR prints all its keys.\n.SH COMMANDS\n",
      k_version);
  for (const DescribedCommand& command : describe_commands(app)) text += command_text(command);
  return text + list("EXIT STATUS", k_exit_codes) + list("ENVIRONMENT", k_variables) + list("FILES", k_files) +
         list("EXAMPLES", k_examples) + ".SH SEE ALSO\n.BR mpirun (1),\n.BR nvidia\\-smi (1)\n";
}

}  // namespace onebatch::launch
