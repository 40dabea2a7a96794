// The arguments of the program.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace onebatch::launch {

struct Arguments {
  // "train", "probe", "plan", "verify", "eval", "data", "check", "export", "report", "bench", "info", "launch",
  // "doctor", "init", "compile"
  std::string command;
  std::string config_file;
  std::vector<std::string> assignments;  // --set
  std::string json_file;
  std::string log_folder;
  bool strict = false;
  bool quiet = false;
  bool resume = false;               // train
  std::string timeline_file;         // train
  std::string plan_file;             // train, verify: the plan to follow
  std::string profile_file;          // plan, data
  std::vector<std::string> devices;  // plan: clusters that need not be there
  std::string profiles_folder = "profiles";
  std::vector<std::int64_t> global_batches;
  std::string prices;
  std::string html_file;
  double gradient_bytes = 0.0;
  std::int64_t ranks_per_node = 8;
  double node_bandwidth = 100.0;  // GB/s
  double bandwidth = 12.5;        // GB/s
  double latency = 10.0;          // µs
  double tolerance = 0.0;         // verify; 0 = the precision's own
  std::string gradient_file;      // verify
  std::string checkpoint;         // eval, export, predict
  std::string weights;            // eval, export, predict: "raw", "ema"; empty: the averaged ones where there are any
  std::string sheet_file;         // data
  std::int64_t most_samples = 0;  // data; 0 = all
  std::string program_file;       // check, compile: an exported program, and what follows
  std::string inputs_file;        // to run it on; empty: it is looked at
  std::string phase = "training";
  std::string check_device = "cpu";
  std::string save_file;
  bool own_loss = false;
  std::string source;             // export: a folder of a run or of a checkpoint, or a configuration
  std::string target_file;        // export, predict, report, compile
  std::vector<std::string> runs;  // report: folders of runs
  bool overwrite = false;         // likewise
  std::string split;              // predict: "train", "validation" or "all"; empty: "validation"
  std::string benchmark;          // bench: "all-reduce"
  double most_bytes = 256.0 * 1024 * 1024;
  std::optional<int> ranks;             // launch: none: as many as there are devices
  std::string hosts;                    // launch
  bool only_show = false;               // launch
  std::vector<std::string> launched;    // launch: the command and what follows it
  bool keys = false;                    // info: print the configuration's keys
  std::string output_folder = "runs";   // doctor: where runs are to be kept
  double deadline_seconds = 30.0;       // doctor: of the ranks' trial
  std::string data_path;                // init; empty: what comes with the program
  std::string model_file;               // init: an exported program
  std::string written_file;             // init; empty: named after the data
  std::string compiled_loss = "model";  // compile: and what follows
  std::int64_t ignore_index = -100;
  double label_smoothing = 0.0;
  std::string class_dim = "last";
  std::vector<double> class_weights;
  std::string label_weights = "none";
  std::string compiled_precision = "float32";
  std::string compiled_device = "cpu";
  bool compiled_deterministic = false;
  bool compiled_recompute = false;
  bool compiled_shared_batch_norm = false;
  bool without_evaluation = false;
  std::string shell;     // completion: "bash", "zsh", "fish"
  std::string as_typed;  // all words, quoted for a shell
};

struct ParsedArguments {
  std::optional<Arguments> arguments;  // none: `text` is to be printed and the program ends
  std::string text;
  int exit_code = 0;
};

ParsedArguments parse_arguments(int argc, const char* const* argv);

}  // namespace onebatch::launch
