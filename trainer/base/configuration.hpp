// Everything a run can be told, as plain structs. The program fills them from TOML (launch/), a library user fills them
// by hand.
#pragma once

#include "trainer/base/cost_table.hpp"

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace onebatch {

enum class DeviceChoice { automatic, cuda, cpu };
enum class Determinism { off, on, bitwise };
enum class Switch { automatic, on, off };  // automatic: on where it is of use and nothing forbids it
enum class LastBatch { exact, drop };
enum class Sampling { shuffle, sequential, balanced, weighted };
enum class Replan { automatic, always, never };
enum class ResNetStem { imagenet, cifar };
enum class TokenType { automatic, uint8, uint16, uint32 };
enum class NormalizeBy { samples, tokens };
enum class Precision { float32, float64, bfloat16, float16 };
enum class BatchNormMode { local, sync, exact };
enum class Recompute { off, automatic, on };
enum class Offload { automatic, never };
enum class ProbeMode { model, power, binsearch };
enum class CommBackend { automatic, nccl, mpi };
enum class ReduceType { parameters, bfloat16 };
enum class OnBroken { stop, skip };
enum class ResumeMode { automatic, never, path };
enum class BetterIs { automatic, least, greatest };  // automatic: by the metric
enum class LrScaling { none, linear, square_root };

/// What a kind brings that is registered from elsewhere, by the key's name; see trainer/settings/option.hpp.
using Options = std::map<std::string, std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>>;

/// A number of the validation by which checkpoints or steps are compared.
struct WatchedMetric {
  std::string metric;  // as validation.jsonl names it; empty = none is watched
  BetterIs better = BetterIs::automatic;
};

struct EarlyStopping {
  WatchedMetric watched;
  std::int64_t patience = 5;  // validations in a row without a better one
  double min_delta = 0.0;     // what is better by less is no better
};

struct RunConfiguration {
  std::string name;  // the folder below output_dir; empty = the configuration file's stem
  std::string output_dir = "runs";
  std::uint64_t seed = 1;
  std::optional<std::int64_t> epochs;  // one of the two, or both: whichever ends first
  std::optional<std::int64_t> max_steps;
  std::int64_t validate_every_steps = 0;  // besides at each epoch's end; 0 = not by steps
  bool val_first = false;                 // a validation before the first step
  EarlyStopping early_stopping;
  std::vector<std::string> metrics;  // of a validation, beside its loss; empty = those of the loss's kind
  DeviceChoice device = DeviceChoice::automatic;
  Determinism deterministic = Determinism::off;
  Switch cuda_graphs = Switch::automatic;  // of micro-steps, on a GPU; automatic: where a model's can be recorded
};

struct BatchConfiguration {
  std::int64_t global_batch_size = 0;                       // samples of one optimizer step over all ranks; required
  std::vector<std::int64_t> micro_batch_size;               // empty = auto, one = every rank, else one per rank
  std::optional<std::int64_t> gradient_accumulation_steps;  // none = auto
  LastBatch last_batch = LastBatch::exact;
  Replan replan = Replan::automatic;  // when a device's speed has changed for good; automatic: where that leaves the
                                      // result as it is
};

/// One data set. The validation set has the same keys and inherits those left out.
struct DatasetConfiguration {
  std::string kind = "idx";  // or another of trainer/data/sources.cmake, or one that was registered
  std::string path;          // idx: folder with train-*/t10k-* files; safetensors, tokens: file, folder or pattern
  std::vector<std::string> files;           // safetensors, tokens: several, by name or pattern, within path
  std::vector<std::string> inputs = {"x"};  // safetensors: names of tensors [samples, ...]
  std::string target = "y";                 // safetensors: likewise; empty = none
  std::string weights;                      // safetensors: of the target's shape, what each counts; empty = 1
  std::string lengths;                      // safetensors: [samples], of sequences that are padded; empty = all alike
  std::string offsets;          // safetensors: [samples + 1], of sequences that lie without padding; empty = none
  std::int64_t block_size = 0;  // tokens: of one sample
  TokenType token_type = TokenType::automatic;      // tokens
  std::int64_t vocabulary = 0;                      // tokens; 0 = looked through
  std::optional<std::int64_t> separator;            // tokens: between documents
  std::vector<std::int64_t> shape = {3, 224, 224};  // synthetic: one sample's shape
  std::int64_t num_classes = 10;                    // synthetic
  std::int64_t size = 1000;                         // synthetic: number of samples
  std::vector<std::int64_t> image_size;             // image_folder: height and width
  std::int64_t channels = 3;                        // image_folder: or 1, grey
  std::int64_t resize = 0;                          // image_folder: shorter side before the centre is cut out; 0 = auto
  std::vector<double> mean;             // by channel, of pixels from 0 to 1; empty = ImageNet's (image_folder), or
                                        // numbers as they are (safetensors)
  std::vector<double> deviation;        // likewise
  OnBroken on_broken = OnBroken::stop;  // image_folder: a file that cannot be read
  Options options;                      // of a kind that was registered
};

/// Of training images, by sample.
struct AugmentConfiguration {
  std::int64_t crop_padding = 0;  // pixels by which an image is shifted at most
  bool horizontal_flip = false;   // half of them are mirrored
  // Of image files, as torchvision's of the same names.
  bool random_resized_crop = false;
  std::array<double, 2> crop_scale = {0.08, 1.0};             // part of the image's area
  std::array<double, 2> crop_ratio = {3.0 / 4.0, 4.0 / 3.0};  // width over height
  double brightness = 0.0;                                    // factors from 1 - x to 1 + x
  double contrast = 0.0;
  double saturation = 0.0;
  double hue = 0.0;                         // turns by up to so much of the circle, 0 to 0.5
  std::int64_t rand_augment_ops = 0;        // RandAugment's operations in a row; 0 = none
  std::int64_t rand_augment_magnitude = 9;  // 0 to 30
  double mixup_alpha = 0.0;                 // of Beta(alpha, alpha); 0 = none
  double cutmix_alpha = 0.0;
};

/// Which samples of the training data take part, and how an epoch goes through them.
struct SamplingConfiguration {
  double fraction = 1.0;  // of what is left for training
  std::string subset;     // a file of sample numbers; empty = all
  double validation_fraction =
      0.0;  // taken from the training data instead of DataConfiguration::validation's; 0 = none
  Sampling order = Sampling::shuffle;
  std::string weights;  // weighted: a file, or a tensor of the data's file, with a number for each sample
};

/// How training samples are read, which changes nothing of what is trained.
struct ReadingConfiguration {
  std::optional<std::int64_t> workers;  // threads that read ahead; none = as many as reading is seen to need
  double read_ahead_mb = 256.0;         // of host memory on each rank
};

struct DataConfiguration {
  DatasetConfiguration train;
  SamplingConfiguration sampling;
  AugmentConfiguration augment;
  ReadingConfiguration reading;
  std::optional<DatasetConfiguration> validation;
};

struct ModelConfiguration {
  std::string kind = "mlp";                       // or "resnet", "torchscript", or one that was registered
  std::string path;                               // torchscript: the file
  std::string weights;                            // safetensors or .pt2 to start from
  std::string weights_prefix;                     // that names have in the file alone, or in the model alone
  std::vector<std::string> freeze;                // patterns of parameters that are not trained
  std::vector<std::string> reinitialize;          // patterns of what begins anew
  std::vector<std::int64_t> hidden = {512, 512};  // mlp
  double dropout = 0.0;                           // mlp
  std::int64_t depth = 18;  // resnet: 18 (imagenet or cifar stem), 8, 20 (cifar, three stages of 16, 32, 64)
  ResNetStem stem = ResNetStem::imagenet;
  std::int64_t num_classes = 0;  // 0 = the data's
  Options options;               // of a kind that was registered
};

struct LossConfiguration {
  std::string kind = "cross_entropy";  // or "mse", "model", or one that was registered
  double label_smoothing = 0.0;
  std::int64_t ignore_index = -100;
  std::vector<double> class_weights;
  // What the sum is divided by: labels that count, or samples that have one.
  NormalizeBy normalize_by = NormalizeBy::tokens;
  Options options;  // of a kind that was registered
};

/// Options of some parameters; a parameter belongs to the first group that matches its name.
struct ParameterGroup {
  std::string match;  // with * for any text: "*.bias"
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

struct OptimizerConfiguration {
  std::string kind = "adamw";  // or "adam", "sgd", or one that was registered
  double lr = 1e-3;
  double weight_decay = 0.0;
  std::array<double, 2> betas = {0.9, 0.999};
  double eps = 1e-8;
  double momentum = 0.0;
  bool nesterov = false;
  std::vector<ParameterGroup> groups;
  std::optional<double> max_grad_norm;   // none = no clipping
  std::optional<double> max_grad_value;  // of each element
  double ema_decay = 0.0;                // of an exponential moving average of the weights; 0 = none is kept
  LrScaling lr_scaling = LrScaling::none;
  std::int64_t lr_batch_size = 256;  // lr_scaling: the global batch that lr is meant for
  Options options;                   // of a kind that was registered
};

struct ScheduleConfiguration {
  std::string kind = "constant";  // or "linear", "cosine", "step", or one that was registered
  std::int64_t warmup_steps = 0;  // at most one of the three
  double warmup_epochs = 0.0;
  double warmup_fraction = 0.0;    // of all steps
  double final_lr_fraction = 0.0;  // linear, cosine: lr at the end over lr at the top
  std::int64_t step_size = 0;      // step: optimizer steps between two cuts
  double gamma = 0.1;              // step: the cut
  Options options;                 // of a kind that was registered
};

struct PrecisionConfiguration {
  Precision compute = Precision::float32;
  Precision parameters = Precision::float32;
  bool master_weights = true;        // bfloat16, float16 parameters: float32 copies are what the optimizer updates, and
                                     // gradients are summed in float32
  std::optional<double> loss_scale;  // float16: a fixed one; none = dynamic
  std::int64_t loss_scale_growth_steps = 2000;  // good steps in a row after which a dynamic one doubles
  bool allow_tf32 = false;
  Switch channels_last = Switch::automatic;  // automatic: on where a GPU's convolutions compute in 16 bits or TF32
  bool cudnn_benchmark = false;              // cuDNN tries its algorithms for every shape and takes the quickest
};

struct BatchNormConfiguration {
  BatchNormMode mode = BatchNormMode::local;
  bool frozen = false;  // normalise with the running statistics also in training, never update them
  // Whose statistics are taken; less only where memory, the batch or its share are smaller.
  std::int64_t min_micro_batch_size = 16;
};

struct MemoryConfiguration {
  Recompute recompute = Recompute::off;
  std::int64_t segments = 0;  // of a recomputed forward; 0 = as many as take the least memory
  // What exact BatchNorm keeps of a share that the device has no room for goes to host memory.
  Offload offload = Offload::automatic;
  // Of LibTorch's allocator on a CUDA GPU.
  bool expandable_segments = false;
  std::optional<std::int64_t> max_split_size_mb;  // none = blocks of any size are split
  double garbage_collection_threshold = 0.0;  // share of the limit from which unused blocks are given back; 0 = none
};

struct ProbeConfiguration {
  ProbeMode mode = ProbeMode::model;
  double margin = 0.05;  // the share of the largest size that fits which is held back
  std::int64_t init_val = 2;
  std::int64_t max_val = 8192;
  std::int64_t max_trials = 25;
  std::int64_t steps_per_trial = 3;
  bool cache = true;  // an earlier answer to the same question is confirmed by one trial
};

struct CommConfiguration {
  CommBackend backend = CommBackend::automatic;
  double bucket_cap_mb = 25.0;
  Switch overlap = Switch::automatic;                // reduce during the last backward; automatic: on for GPUs
  ReduceType reduce_dtype = ReduceType::parameters;  // what travels: the gradient as it is, or rounded to bfloat16
  std::int64_t check_replicas_every_steps = 100;     // compare the ranks' parameters; 0 = never
  double timeout_seconds = 600.0;
  bool allow_shared_device = false;
};

struct CheckpointConfiguration {
  std::int64_t every_steps = 0;  // 0 = not by steps; at the end and on a signal in any case
  double every_minutes = 10.0;   // since the last; 0 = not by time
  std::int64_t keep = 2;
  std::int64_t keep_every = 0;            // besides those of a step that is a multiple of it; 0 = none
  ResumeMode resume = ResumeMode::never;  // a new training is a new run
  bool background = true;                 // written from a copy on rank 0's host while training goes on
  std::string resume_path;                // ResumeMode::path: a step-N folder or a run's folder
  WatchedMetric keep_best;                // the checkpoint of the best validation stays besides
};

struct VerifyConfiguration {
  bool at_start = true;  // train: a few samples at once against the same in parts, before the first step
};

/// A program that is told of a run's events, one JSON object a line, on its standard input.
struct LogSink {
  std::vector<std::string> command;  // program and arguments; no shell
  std::vector<std::string> events;   // names of those it wants; empty = all
};

struct LogConfiguration {
  std::int64_t every_steps = 10;  // lines on a screen that is no terminal
  bool jsonl = true;
  bool samples = false;
  bool csv = true;
  bool tensorboard = true;
  bool report = true;
  std::vector<LogSink> sinks;
};

/// What a simulated device becomes in mid-run.
struct DeviceChange {
  std::int64_t step = 0;  // from this optimizer step on, counted from 1
  std::optional<std::int64_t> memory_bytes;
  std::optional<double> slowdown;
};

/// One device that the CPU simulates.
struct SimulatedDevice {
  std::int64_t memory_bytes = 0;  // 0 = no limit of its own
  double slowdown = 1.0;          // compute time is stretched by this factor
  std::vector<DeviceChange> changes;
  // What a micro-batch takes at a slowdown of 1, as a CostTable; empty = what it takes here.
  std::vector<TimedSize> step_seconds;
};

struct Configuration {
  RunConfiguration run;
  BatchConfiguration batch;
  DataConfiguration data;
  ModelConfiguration model;
  LossConfiguration loss;
  OptimizerConfiguration optimizer;
  ScheduleConfiguration schedule;
  PrecisionConfiguration precision;
  BatchNormConfiguration batch_norm;
  MemoryConfiguration memory;
  ProbeConfiguration probe;
  CommConfiguration comm;
  CheckpointConfiguration checkpoint;
  VerifyConfiguration verify;
  LogConfiguration log;
  std::vector<SimulatedDevice> simulate;
};

}  // namespace onebatch
