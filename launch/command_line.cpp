#include "launch/command_line.hpp"

#include "launch/command_options.hpp"
#include "launch/completion.hpp"
#include "launch/manual_page.hpp"
#include "launch/nearest.hpp"
#include "launch/shell_words.hpp"
#include "launch/weights_option.hpp"
#include "trainer/base/error.hpp"
#include "trainer/base/version.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <sstream>

namespace onebatch::launch {

CLI::App* add_command(CLI::App& app, Arguments& arguments, const char* name, const char* description, Takes takes) {
  CLI::App* command = app.add_subcommand(name, description);
  if (takes == Takes::a_configuration) {
    command->add_option("CONFIG", arguments.config_file, "configuration file (TOML)")->required();
    command->add_option("--set", arguments.assignments, "section.key=value, over the file's; may be repeated")
        ->allow_extra_args(false);
  }
  command->add_option("--json", arguments.json_file, "write the result as one document to this file");
  command->add_flag("--strict", arguments.strict, "an error where something else than asked would be done");
  command->add_flag("--quiet", arguments.quiet, "print only errors and the result");
  command->add_option("--log-dir", arguments.log_folder,
                      "add what each rank says, with the time, to rank-N.log in this folder");
  command->callback([&arguments, name] { arguments.command = name; });
  return command;
}

namespace {

const std::vector<std::string> k_commands = {"train",  "probe",  "plan",    "verify",  "eval",       "data",
                                             "check",  "export", "predict", "report",  "bench",      "info",
                                             "launch", "doctor", "init",    "compile", "completion", "manual"};
const std::vector<std::string> k_benchmarks = {"all-reduce"};

void add_plan(CLI::App& app, Arguments& arguments) {
  CLI::App* plan = add_command(app, arguments, "plan", "print the plan; with a saved profile no device is needed",
                               Takes::a_configuration);
  CLI::Option* profile =
      plan->add_option("--profile", arguments.profile_file, "a profile, measured or written by hand");
  CLI::Option* devices =
      plan->add_option("--devices", arguments.devices,
                       "a cluster that need not be here, as in 4xV100-16GB,4xP100-16GB; repeat it to compare");
  devices->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)->delimiter('\0')->excludes(profile);
  plan->add_option("--profiles", arguments.profiles_folder, "the folder with profiles of those devices")
      ->capture_default_str();
  CLI::Option* batches = plan->add_option("--global-batches", arguments.global_batches,
                                          "several global batches to compare, as in 256,512,1024")
                             ->delimiter(',')
                             ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  CLI::Option* prices =
      plan->add_option("--prices", arguments.prices, "of a device's hour, as in A100-80GB=2.5,V100-16GB=0.9");
  plan->parse_complete_callback([=] {
    const bool compares = profile->count() + devices->count() + batches->count() > 0;
    if (prices->count() > 0 && !compares)
      throw CLI::RequiresError("--prices", "--profile, --devices or --global-batches");
  });
  plan->add_option("--html", arguments.html_file, "write a page for a browser: who computes when, or the comparison");
  const auto positive = [=](CLI::Option* option) {
    option->check(CLI::PositiveNumber)->capture_default_str()->needs(devices);
  };
  plan->add_option("--gradient-bytes", arguments.gradient_bytes, "that a step reduces, where the profiles do not say")
      ->check(CLI::NonNegativeNumber)
      ->needs(devices);
  positive(plan->add_option("--ranks-per-node", arguments.ranks_per_node, "of --devices"));
  positive(plan->add_option("--node-bandwidth", arguments.node_bandwidth, "GB/s of a rank to another within a node"));
  positive(plan->add_option("--bandwidth", arguments.bandwidth, "GB/s of a node to another"));
  positive(plan->add_option("--latency", arguments.latency, "µs of a message between nodes"));
}

void add_weights(CLI::App& command, Arguments& arguments) {
  command
      .add_option("--weights", arguments.weights,
                  "raw: as they were trained; ema: averaged (optimizer.ema_decay), which are taken where there are any")
      ->check(CLI::IsMember(k_weights_words));
}

void add_plan_file(CLI::App& command, Arguments& arguments) {
  command.add_option("--plan", arguments.plan_file, "follow this plan, as in a run's plan.json, instead of making one");
}

void add_data(CLI::App& app, Arguments& arguments) {
  CLI::App* data =
      add_command(app, arguments, "data", "what the data are, what of them is broken, how fast they are read",
                  Takes::a_configuration);
  data->add_option("--samples", arguments.most_samples, "look at so many of each split, evenly; else at all")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40));
  data->add_option("--sheet", arguments.sheet_file,
                   "write 64 training images, as epoch 0 begins with them, to this PNG");
  data->add_option("--profile", arguments.profile_file, "say how long its devices would wait for the data");
}

void add_check(CLI::App& app, Arguments& arguments) {
  CLI::App* check = add_command(app, arguments, "check",
                                "what an exported program (.pt2) takes, returns and holds, or what it computes",
                                Takes::options_alone);
  check->add_option("MODEL", arguments.program_file, "a file of torch.export.save")->required();
  CLI::Option* inputs =
      check->add_option("--inputs", arguments.inputs_file,
                        "run it once on the tensors of this safetensors file, in the order of their names");
  CLI::Option* save = check->add_option("--save", arguments.save_file,
                                        "write outputs, gradients and buffers, in float64, to this safetensors file");
  inputs->needs(save);
  save->needs(inputs);
  check->add_option("--phase", arguments.phase, "training or evaluation")
      ->check(CLI::IsMember({"training", "evaluation"}))
      ->capture_default_str()
      ->needs(inputs);
  check->add_option("--device", arguments.check_device, "where it runs: cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str()
      ->needs(inputs);
  check
      ->add_flag("--loss", arguments.own_loss,
                 "take the gradient of the first of its two outputs, its loss's sum; else of the sum of all squares")
      ->needs(inputs);
}

void add_export(CLI::App& app, Arguments& arguments) {
  CLI::App* command =
      add_command(app, arguments, "export", "write a trained model under its names, for Python", Takes::options_alone);
  command
      ->add_option(
          "RUN", arguments.source,
          "a run's folder, for its latest checkpoint, or a step-N folder, or RUN/checkpoints/best, or CONFIG.toml "
          "with --checkpoint")
      ->required();
  command
      ->add_option("--to", arguments.target_file,
                   "NAME.safetensors for the weights alone, NAME.pt2 for the exported program that was trained")
      ->required();
  command->add_flag("--overwrite", arguments.overwrite, "replace that file where it is there");
  command->add_option("--checkpoint", arguments.checkpoint,
                      "with CONFIG.toml: a step-N folder, a run's folder, or RUN/checkpoints/best");
  add_weights(*command, arguments);
  command->add_option("--set", arguments.assignments, "with CONFIG.toml: section.key=value; may be repeated")
      ->allow_extra_args(false);
}

void add_predict(CLI::App& app, Arguments& arguments) {
  CLI::App* predict = add_command(app, arguments, "predict",
                                  "write what a trained model returns for the data's samples", Takes::a_configuration);
  predict->add_option("--checkpoint", arguments.checkpoint, "a step-N folder, a run's folder, or RUN/checkpoints/best")
      ->required();
  predict->add_option("--out", arguments.target_file, "NAME.safetensors for the outputs, in the order of the samples")
      ->required();
  predict
      ->add_option("--data", arguments.split,
                   "which samples: validation, unless it says train; all: of the training data's files, "
                   "none left out for validation or by data.fraction and data.subset")
      ->check(CLI::IsMember({"train", "validation", "all"}));
  predict->add_flag("--force,--overwrite", arguments.overwrite, "replace that file where it is there");
  add_weights(*predict, arguments);
}

void add_report(CLI::App& app, Arguments& arguments) {
  CLI::App* report =
      add_command(app, arguments, "report", "draw runs as a page for a browser: complete, in progress or failed",
                  Takes::options_alone);
  report->add_option("RUN", arguments.runs, "a run's folder; several are drawn over each other")->required();
  report->add_option("--out", arguments.target_file,
                     "write it there; else, of one run, it is report.html in its folder");
}

void add_commands(CLI::App& app, Arguments& arguments) {
  CLI::App* train =
      add_command(app, arguments, "train", "probe, plan, train, validate, checkpoint", Takes::a_configuration);
  train->add_flag("--resume", arguments.resume, "go on with the run of this name instead of beginning a new one");
  add_plan_file(*train, arguments);
  train->add_option("--timeline", arguments.timeline_file,
                    "write what every rank did when, as a Chrome trace (opens in Perfetto)");
  add_command(app, arguments, "probe", "measure every rank's device and print the profile", Takes::a_configuration);
  add_plan(app, arguments);
  CLI::App* verify = add_command(app, arguments, "verify", "the plan's gradient against one single large batch",
                                 Takes::a_configuration);
  add_plan_file(*verify, arguments);
  verify->add_option("--tolerance", arguments.tolerance, "largest relative L2 that passes")
      ->check(CLI::NonNegativeNumber);
  verify->add_option("--save-gradient", arguments.gradient_file, "write the gradient as safetensors to this file");
  CLI::App* eval = add_command(app, arguments, "eval", "metrics on the validation data", Takes::a_configuration);
  eval->add_option("--checkpoint", arguments.checkpoint, "a step-N folder, a run's folder, or RUN/checkpoints/best")
      ->required();
  add_weights(*eval, arguments);
  add_predict(app, arguments);
  add_data(app, arguments);
  add_check(app, arguments);
  add_export(app, arguments);
  add_report(app, arguments);
  CLI::App* bench =
      add_command(app, arguments, "bench", "measure what a user may want to repeat: all-reduce", Takes::options_alone);
  bench->add_option("WHAT", arguments.benchmark, "all-reduce")->required()->check(CLI::IsMember(k_benchmarks));
  bench->add_option("--max-bytes", arguments.most_bytes, "largest buffer")->check(CLI::Range(4.0, 17179869184.0));
  add_command(app, arguments, "info", "what was built and what is here", Takes::options_alone)
      ->add_flag("--keys", arguments.keys,
                 "print every key of a configuration instead, with its default and what it means");
}

void add_launch(CLI::App& app, Arguments& arguments) {
  CLI::App* command = app.add_subcommand("launch", "start a command on several ranks: a rank for each GPU, or -np N");
  command->add_option("--np", arguments.ranks, "how many ranks, here; -np as for mpirun")->check(CLI::Range(1, 65536));
  command->add_option("--hosts", arguments.hosts, "where, and how many on each, as in a:2,b:4");
  command->add_flag("--show", arguments.only_show, "print the mpirun line, and do not run it");
  command->add_flag("--quiet", arguments.quiet, "do not print it");
  command->prefix_command();
  command->callback([&arguments, command] {
    arguments.command = "launch";
    arguments.launched = command->remaining();
  });
}

// CLI11 has no options of one dash and two letters, as mpirun has.
std::vector<std::string> with_np_spelt_out(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty() || words.front() != "launch") return words;
  const auto command = std::find_if(words.begin() + 1, words.end(), [](const std::string& word) {
    return std::find(k_commands.begin(), k_commands.end(), word) != k_commands.end();
  });
  for (auto word = words.begin(); word != command; ++word) {
    if (*word == "-np" || *word == "-n") *word = "--np";
  }
  return words;
}

std::string as_typed(int argc, const char* const* argv) {
  std::string text;
  for (int i = 0; i < argc; ++i) text += (i > 0 ? " " : "") + quoted_for_shell(argv[i]);
  return text;
}

// A word in the place of a command that is none.
std::optional<ParsedArguments> explain_command(int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  const std::string word = argv[1];
  const auto is = [&](const std::vector<std::string>& words) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (is(k_commands)) return std::nullopt;
  const int code = static_cast<int>(ExitCode::user_error);
  const auto meant = nearest(word, k_commands);
  return ParsedArguments{std::nullopt,
                         "onebatch: no command \"" + word + "\"" + (meant ? "; did you mean " + *meant + "?" : "") +
                             "\nonebatch --help lists them\n",
                         code};
}

// What is to be launched is looked at here, once, and not by each rank.
std::optional<ParsedArguments> explain_launched(const Arguments& arguments) {
  const int code = static_cast<int>(ExitCode::user_error);
  if (arguments.launched.empty() || arguments.launched.front() == "launch")
    return ParsedArguments{std::nullopt, "onebatch: launch what? Write onebatch launch -np 2 train CONFIG\n", code};
  std::vector<const char*> words = {"onebatch"};
  for (const std::string& word : arguments.launched) words.push_back(word.c_str());
  ParsedArguments parsed = parse_arguments(static_cast<int>(words.size()), words.data());
  if (parsed.arguments) return std::nullopt;
  return parsed;
}

std::string mistake_text(const CLI::App& app, const CLI::ParseError& error) {
  const auto commands = app.get_subcommands();
  if (commands.empty() && dynamic_cast<const CLI::RequiredError*>(&error) != nullptr)
    return "onebatch: a command is needed: onebatch --help lists them\n";
  const std::string command = commands.empty() ? "" : " " + commands.front()->get_name();
  return std::string("onebatch") + command + ": " + error.what() + "; onebatch" + command + " --help says more\n";
}

}  // namespace

ParsedArguments parse_arguments(int argc, const char* const* argv) {
  if (auto explained = explain_command(argc, argv)) return *explained;
  Arguments arguments;
  CLI::App app("onebatch: any mix of GPUs behaves like one big GPU: one command, one global batch, one gradient",
               "onebatch");
  app.set_version_flag("--version", std::string("onebatch ") + k_version);
  app.require_subcommand(1);
  app.footer(
      "Several ranks: onebatch launch -np 3 train CONFIG\nExit codes: 0 done, 1 failed, 2 user's "
      "mistake, 3 does not fit, 4 another rank failed, 5 verification failed, 75 stopped after saving");
  add_commands(app, arguments);
  add_launch(app, arguments);
  add_setup_commands(app, arguments);
  try {
    std::vector<std::string> words = with_np_spelt_out(argc, argv);
    std::reverse(words.begin(), words.end());  // CLI11 takes them from the end
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return {std::nullopt, mistake_text(app, error), static_cast<int>(ExitCode::user_error)};
    std::ostringstream out;
    app.exit(error, out, out);
    return {std::nullopt, out.str(), 0};
  }
  if (arguments.command == "completion") return {std::nullopt, completion_script(app, arguments.shell), 0};
  if (arguments.command == "manual") return {std::nullopt, manual_page(app), 0};
  if (arguments.command == "launch") {
    if (auto mistake = explain_launched(arguments)) return *mistake;
  }
  arguments.as_typed = as_typed(argc, argv);
  return {arguments, "", 0};
}

}  // namespace onebatch::launch
