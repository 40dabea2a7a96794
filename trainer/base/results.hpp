// What training, verification and evaluation answer. Plain data; documents/ writes it as JSON.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace onebatch {

/// One optimizer step, as metrics.jsonl has it.
struct StepRecord {
  std::int64_t step = 0;   // 1-based: steps done after this one
  std::int64_t epoch = 0;  // epochs that are complete after this step: the last one of each has the next one's number
  std::int64_t consumed_samples = 0;
  double loss = 0.0;  // mean over the global batch's true weight
  double lr = 0.0;
  double grad_norm = 0.0;            // of the whole gradient, before clipping; not finite where it overflowed
  bool skipped = false;              // nothing was updated
  std::optional<double> loss_scale;  // float16 only
  double step_seconds = 0.0;
  std::vector<double> compute_seconds;    // per rank
  std::vector<double> data_wait_seconds;  // per rank: for samples, no part of those
  double exposed_comm_seconds = 0.0;
  double samples_per_second = 0.0;
  std::vector<std::int64_t> memory_peak_bytes;  // per rank
  std::int64_t reduced_bytes = 0;               // that each rank handed to the communicator
  std::int64_t plan = 0;                        // how often the plan had changed in this start until then
};

/// A number of a whole validation set, by its name in the result documents: "f1_macro", "perplexity", ...
struct MetricValue {
  std::string name;
  double value = 0.0;
};

struct EvaluationResult {
  double loss = 0.0;
  std::optional<double> accuracy = {};  // classification only
  std::int64_t samples = 0;
  std::vector<MetricValue> metrics = {};  // beside these two, in the order in which they are shown
  std::vector<std::vector<std::int64_t>> confusion_matrix = {};  // [true class][predicted class]; may be empty
};

/// Not a number where no step was made.
struct StepSeconds {
  double median = std::numeric_limits<double>::quiet_NaN();
  double p95 = std::numeric_limits<double>::quiet_NaN();
};

struct TrainResult {
  std::int64_t steps = 0;
  std::int64_t consumed_samples = 0;
  double train_loss = 0.0;                     // of the last step
  std::optional<EvaluationResult> validation;  // after the last step
  // Of this start; not a number where it made no step.
  double samples_per_second = std::numeric_limits<double>::quiet_NaN();
  StepSeconds step_seconds;
  double predicted_step_seconds = std::numeric_limits<double>::quiet_NaN();
  double data_wait_seconds = 0.0;         // of all steps: of each, the rank's that waited most for samples
  std::int64_t out_of_memory_events = 0;  // in this start, as the next one
  std::int64_t replans = 0;
  std::int64_t reduced_bytes_per_step = 0;  // of the last step; the same whatever the accumulation
  std::int64_t mended_replicas = 0;  // in this start: how often some rank's parameters differed and were replaced
  std::string run_dir;
  bool stopped_by_signal = false;      // saved; --resume goes on
  bool stopped_early = false;          // by run.early_stopping
  std::int64_t checkpoints_saved = 0;  // in this start
  std::int64_t checkpoint_waits = 0;   // of them, those that had to wait until the one before was written
  double checkpoint_seconds = 0.0;     // for which training stood still because of all of them
};

struct ParameterDifference {
  std::string name;
  double relative_l2 = 0.0;
  double max_abs = 0.0;
  double reference_relative_l2 = 0.0;  // of the single large batch in the run's own precision
};

/// A part of the configuration that makes the gradient another than the large batch's.
struct ConfigurationDifference {
  std::string cause;         // "batch_norm", "randomness", "precision"
  double relative_l2 = 0.0;  // of the gradient with and without it, everything else in float64
};

/// Cannot judge: one single batch in the run's own precision is itself too far off.
enum class Verdict { pass, fail, cannot_judge };

/// One thing that verify has compared.
struct Comparison {
  std::string what;   // "gradient", "loss", "weights", "buffers", ...
  std::string where;  // "step 1", "last batch", ...
  double relative_l2 = 0.0;
  double tolerance = 0.0;
  Verdict verdict = Verdict::fail;
};

/// The plan's micro-batches in float64 on the host, against the batch at once.
struct Float64Verdict {
  bool pass = false;
  double relative_l2 = 0.0;
  double tolerance = 0.0;
};

/// The plan's gradient against one single large batch.
struct VerifyReport {
  bool pass = false;
  Verdict verdict = Verdict::fail;
  std::string reason;                // of a verdict that is no pass: the most likely, in words
  std::string cause;                 // its name: "batch_norm", "mixes_samples", ... as docs/documents.md lists them
  std::vector<Comparison> compared;  // in the order of the run
  std::optional<Float64Verdict> float64;  // where the run computes in something else
  std::string reference;                  // what it was compared with, in words
  double relative_l2 = 0.0;
  double max_abs = 0.0;
  double tolerance = 0.0;
  std::vector<ParameterDifference> parameters;
  std::string batch_norm;
  std::string precision;
  double reference_relative_l2 = 0.0;  // the single large batch in the run's own precision against the same reference
  std::vector<ConfigurationDifference> differences;
  std::vector<std::string> notes;  // the same in words
};

}  // namespace onebatch
