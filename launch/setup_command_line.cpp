// The options of what comes before training: is this machine well, what to write into a configuration, native code.
#include "launch/command_options.hpp"

namespace onebatch::launch {
namespace {

void add_doctor(CLI::App& app, Arguments& arguments) {
  CLI::App* command =
      add_command(app, arguments, "doctor",
                  "what is wrong on this machine, or on those of all ranks, and what mends it", Takes::options_alone);
  command->add_option("--dir", arguments.output_folder, "where runs are to be kept")->capture_default_str();
  command->add_option("--deadline", arguments.deadline_seconds, "seconds that ranks may take to start and reduce")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
}

void add_init(CLI::App& app, Arguments& arguments) {
  CLI::App* command =
      add_command(app, arguments, "init", "write a configuration for the data that it finds", Takes::options_alone);
  command->add_option("DATA", arguments.data_path,
                      "a folder or a file: images, tensors, tokens, text; without it, what comes with the program");
  command->add_option("--model", arguments.model_file, "an exported program (.pt2) to train on them");
  command->add_option("--out", arguments.written_file, "the file to write; else it is named after the data");
  command->add_flag("--force", arguments.overwrite, "replace that file where it is there");
}

void add_compile(CLI::App& app, Arguments& arguments) {
  CLI::App* command = add_command(app, arguments, "compile",
                                  "write an exported program as native code of this machine, for model.compiled; needs "
                                  "a Python with PyTorch",
                                  Takes::options_alone);
  command->add_option("MODEL", arguments.program_file, "a file of onebatch.export")->required();
  command->add_option("--loss", arguments.compiled_loss, "as loss.kind of the run; model: the program returns its loss")
      ->check(CLI::IsMember({"model", "cross_entropy", "mse"}))
      ->capture_default_str();
  command->add_option("--ignore-index", arguments.ignore_index, "as loss.ignore_index")->capture_default_str();
  command->add_option("--label-smoothing", arguments.label_smoothing, "as loss.label_smoothing")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_option("--class-dim", arguments.class_dim, "as loss.class_dim")
      ->check(CLI::IsMember({"last", "second"}))
      ->capture_default_str();
  command->add_option("--class-weights", arguments.class_weights, "as loss.class_weights: 1,2,0.5")
      ->expected(1)
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  command
      ->add_option("--label-weights", arguments.label_weights,
                   "given: the run has data.weights, or skips files; mixed: data.augment.mixup_alpha or cutmix_alpha")
      ->check(CLI::IsMember({"none", "given", "mixed"}))
      ->capture_default_str();
  command->add_option("--precision", arguments.compiled_precision, "as precision.compute of the run")
      ->check(CLI::IsMember({"float32", "float64", "bfloat16", "float16"}))
      ->capture_default_str();
  command
      ->add_option("--device", arguments.compiled_device,
                   "cpu, or cuda, or cuda:1, for the compute capability of that GPU")
      ->capture_default_str();
  command->add_flag("--deterministic", arguments.compiled_deterministic,
                    "the same bits each time, for run.deterministic = true");
  command->add_flag("--shared-batch-norm", arguments.compiled_shared_batch_norm,
                    "statistics of other micro-batches too, for batch_norm.mode = \"sync\" or \"exact\"");
  command->add_flag("--no-evaluation", arguments.without_evaluation,
                    "only what trains: the run validates by the program uncompiled");
  command->add_flag("--recompute", arguments.compiled_recompute,
                    "also code that computes activations again, for memory.recompute = \"auto\"");
  command->add_option("--out", arguments.target_file, "the folder; else the program's name with .compiled");
}

void add_texts(CLI::App& app, Arguments& arguments) {
  CLI::App* completion =
      app.add_subcommand("completion", "print what makes a shell complete commands, options and keys");
  completion->add_option("SHELL", arguments.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember(std::vector<std::string>{"bash", "zsh", "fish"}));
  completion->callback([&arguments] { arguments.command = "completion"; });
  app.add_subcommand("manual", "print the manual page, for man -l -")->callback([&arguments] {
    arguments.command = "manual";
  });
}

}  // namespace

void add_setup_commands(CLI::App& app, Arguments& arguments) {
  add_doctor(app, arguments);
  add_init(app, arguments);
  add_compile(app, arguments);
  add_texts(app, arguments);
}

}  // namespace onebatch::launch
