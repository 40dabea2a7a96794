// How long to train, in which batches; what is kept and said of it.
#include "trainer/settings/sections.hpp"
#include "trainer/settings/special_keys.hpp"

namespace onebatch {

KeysOf<RunConfiguration> run_keys() {
  using Run = RunConfiguration;
  return {
      text_key({"name", Changes::nothing, "folder of the run, below `output_dir`", "the file's name without `.toml`"},
               &Run::name),
      text_key({"output_dir", Changes::nothing,
                "where runs are kept; a run never overwrites another: it takes `name-2`, `name-3`, …"},
               &Run::output_dir),
      integer_key({"seed", Changes::result | Changes::run, "the order of samples, the first weights, dropout"}, 0,
                  k_any, &Run::seed),
      optional_integer_key({"epochs", Changes::result, "how long to train; or"}, 1, "", &Run::epochs),
      optional_integer_key(
          {"max_steps", Changes::result, "this many optimizer steps; of both, the one that ends first"}, 1, "",
          &Run::max_steps),
      integer_key(
          {"validate_every_steps", Changes::result,
           "a validation after every so many steps, besides those at each epoch's end and at the run's; 0: none"},
          0, k_any, &Run::validate_every_steps),
      boolean_key({"val_first", Changes::result, "and one before the first step"}, &Run::val_first),
      metrics_key({"metrics", Changes::nothing,
                   "[of a validation](metrics.md), beside its loss and, of classes, its accuracy: of classes "
                   "`\"top_K\"` (as `\"top_5\"`), `\"f1_macro\"`, `\"f1_per_class\"`, `\"confusion_matrix\"` and "
                   "`\"perplexity\"`, of numbers `\"mean_absolute_error\"` and `\"r2\"`. They are those of the whole "
                   "set, on any ranks and under any plan. `[\"loss\"]`: none",
                   "perplexity of text, both of numbers"}),
      choice_key({"device", Changes::result,
                  "`\"cuda\"`, `\"cpu\"`; auto takes a GPU where there is one and the build knows CUDA. All ranks take "
                  "GPUs, or all the CPU: else the run is refused"},
                 {{"auto", DeviceChoice::automatic}, {"cuda", DeviceChoice::cuda}, {"cpu", DeviceChoice::cpu}},
                 &Run::device),
      deterministic_key({"deterministic", Changes::result | Changes::probe,
                         "true: only operators that give the same bits every time; an operator that has no such form "
                         "is an error. `\"bitwise\"`: and the same bits on any ranks under any plan, with "
                         "`batch.micro_batch_size = n` samples in every kernel call: see [Precision](precision.md)"}),
      cuda_graphs_key(
          {"cuda_graphs", Changes::nothing,
           "on a GPU the kernels of a micro-batch's forward and backward are [recorded once and started as "
           "one](gpu.md#cuda-graphs) from then on, which saves the host's time and changes no bit. auto: where the "
           "model's can be recorded; what cannot runs kernel by kernel, which is said once, and true makes a fallback "
           "of it. Not with `run.deterministic = \"bitwise\"`, nor where what exact BatchNorm keeps lies in host "
           "memory"})};
}

KeysOf<BatchConfiguration> batch_keys() {
  using Batch = BatchConfiguration;
  return {
      integer_key({"global_batch_size", Changes::result | Changes::probe,
                   "samples of one optimizer step, over all ranks and accumulation steps. Any integer from 1; a plan "
                   "takes 24 bytes of memory for each sample of a rank's share, and goes up to 2^30 of them a rank",
                   "needed"},
                  1, std::int64_t{1} << 40, &Batch::global_batch_size),
      micro_batch_key(
          {"micro_batch_size", Changes::result | Changes::probe,
           "samples in one forward and backward: `\"auto\"` measures, `n` for every rank, `[n0, n1, …]` one for each "
           "(with `batch_norm.mode = \"sync\"` at most)"}),
      optional_integer_key({"gradient_accumulation_steps", Changes::result,
                            "`n`: ranks with work do exactly this many micro-batches in a step"},
                           1, "auto", &Batch::gradient_accumulation_steps),
      choice_key({"last_batch", Changes::result,
                  "the short batch at an epoch's end is used with its own true size; `\"drop\"` leaves it out"},
                 {{"exact", LastBatch::exact}, {"drop", LastBatch::drop}}, &Batch::last_batch),
      choice_key({"replan", Changes::result,
                  "when a device has lastingly become slower or faster: its times are measured anew and a new plan is "
                  "made where that wins enough. `\"auto\"` does so where the result stays the same, and says so where "
                  "BatchNorm's local statistics would change with the plan; `\"always\"` does it there too; "
                  "`\"never\"` keeps the plan and says what it costs"},
                 {{"auto", Replan::automatic}, {"always", Replan::always}, {"never", Replan::never}}, &Batch::replan)};
}

KeysOf<CheckpointConfiguration> checkpoint_keys() {
  using Checkpoint = CheckpointConfiguration;
  return {
      integer_key({"every_steps", Changes::nothing,
                   "0: not by steps. At the end and on a signal there is a checkpoint in any case"},
                  0, k_any, &Checkpoint::every_steps),
      number_key(
          {"every_minutes", Changes::nothing,
           "a checkpoint at the end of the step in which so many minutes have passed since the last; 0: not by time"},
          {0.0, 1e6}, &Checkpoint::every_minutes),
      integer_key({"keep", Changes::nothing, "how many checkpoints are kept, the newest; 0: all"}, 0, k_any,
                  &Checkpoint::keep),
      integer_key({"keep_every", Changes::nothing,
                   "besides them every checkpoint stays whose step is a multiple of this; 0: none"},
                  0, k_any, &Checkpoint::keep_every),
      boolean_key({"background", Changes::nothing,
                   "training goes on while a checkpoint is [written from a copy](running.md#checkpoints) in rank 0's "
                   "host memory. false: it waits"},
                  &Checkpoint::background),
      resume_key({"resume", Changes::nothing,
                  "a new training is a new run, in a folder of its own. `\"auto\"`, which `train --resume` means too: "
                  "[go on](running.md#a-run-and-its-folder) where a run of this name stopped; or the path of a "
                  "checkpoint or a run"})};
}

KeysOf<VerifyConfiguration> verify_keys() {
  return {boolean_key(
      {"at_start", Changes::nothing,
       "`train` first computes the gradient of a few samples at once and in parts, on the host and with BatchNorm "
       "frozen, and refuses (exit code 2) a model of which the two differ: an operator that mixes samples, noise, "
       "hidden state, a mean for a sum. See [Documents](documents.md#verify). false: train it all the same"},
      &VerifyConfiguration::at_start)};
}

KeysOf<LogConfiguration> log_keys() {
  return {
      integer_key({"every_steps", Changes::nothing, "where the output is no terminal: a line every so many steps"}, 1,
                  k_any, &LogConfiguration::every_steps),
      boolean_key({"jsonl", Changes::nothing, "write `metrics.jsonl` and `validation.jsonl`"},
                  &LogConfiguration::jsonl),
      boolean_key({"csv", Changes::nothing, "write `metrics.csv` and `validation.csv`, a column for each number"},
                  &LogConfiguration::csv),
      boolean_key({"tensorboard", Changes::nothing,
                   "write event files for TensorBoard: `tensorboard --logdir runs` shows all runs"},
                  &LogConfiguration::tensorboard),
      boolean_key({"report", Changes::nothing, "write `report.html`, [a picture of the run](report.md), at its end"},
                  &LogConfiguration::report),
      boolean_key({"samples", Changes::nothing, "write `samples.jsonl`: which samples each step used"},
                  &LogConfiguration::samples),
      sinks_key({"sinks", Changes::nothing,
                 "`[[log.sinks]]`: [programs that are told](running.md#telling-other-programs) what happens, a JSON "
                 "object a line on their standard input, as `command = [\"python3\", "
                 "\"examples/sinks/wandb_sink.py\"]`; with `events = [\"step\", \"validation\"]` only of these"})};
}

KeysOf<std::vector<SimulatedDevice>> simulate_keys() {
  return {devices_key(
      {"devices", Changes::result | Changes::probe,
       "on the CPU: rank *r* plays device *r*, `{memory = \"512MiB\", slowdown = 2.5}`. Memory is a budget for tensors "
       "that really runs out; the time of each micro-batch is stretched by the factor. With `step_seconds = [[1, "
       "0.004], [64, 0.1]]`, sizes and seconds as in a profile, a micro-batch takes what the table says (linear "
       "between its points), times the factor, or what the CPU needs where that is more: a device of known speed on a "
       "machine whose own speed swings. With `changes = [{step = 100, slowdown = 3.0, memory = \"256MiB\"}]` a device "
       "becomes another from an optimizer step on (counted from 1)"})};
}

}  // namespace onebatch
