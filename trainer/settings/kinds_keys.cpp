// Of data, model, loss, optimizer and schedule: what does not belong to some of their kinds alone.
#include "trainer/settings/kinds.hpp"
#include "trainer/settings/sections.hpp"
#include "trainer/settings/special_keys.hpp"

#include <fmt/format.h>

namespace onebatch {
namespace {

constexpr Changes k_both = Changes::result | Changes::probe;

/// Which of the registered kinds.
template <typename Section>
KeyOf<Section> kind_key(KeyText about) {
  const std::string values = kind_names<Section>();
  return {std::move(about), values,
          [=](const ConfigValue& value, Section& section) -> Complaint {
            const auto name = value.text();
            if (!name || find_kind<Section>(*name) == nullptr) return "write " + values;
            section.kind = *name;
            return {};
          },
          [](const Section& section) { return quoted(section.kind); }};
}

// Of a limit the probe's answer depends on whether there is one.
KeyOf<OptimizerConfiguration> limit_key(KeyText about, std::optional<double> OptimizerConfiguration::*limit) {
  KeyOf<OptimizerConfiguration> key = number_key(std::move(about), {0.0, HUGE_VAL, true}, limit);
  key.measured = [limit](const OptimizerConfiguration& optimizer) {
    return std::string(optimizer.*limit ? "set" : "");
  };
  return key;
}

// Below 1, at which the average would never move.
KeyOf<OptimizerConfiguration> decay_key(KeyText about) {
  KeyOf<OptimizerConfiguration> key = number_key(std::move(about), {0.0, 1.0}, &OptimizerConfiguration::ema_decay);
  key.values = "a number from 0.0 to below 1.0, as 0.999";
  key.read = [read = key.read, values = key.values](const ConfigValue& value, OptimizerConfiguration& o) -> Complaint {
    return value.number() == 1.0 || !read(value, o).empty() ? "write " + values : "";
  };
  return key;
}

// From the one to the other.
KeyOf<AugmentConfiguration> ascending_key(KeyText about, Range range,
                                          std::array<double, 2> AugmentConfiguration::*field) {
  KeyOf<AugmentConfiguration> key = numbers_key(std::move(about), range, field);
  key.read = [read = key.read, field](const ConfigValue& value, AugmentConfiguration& augment) -> Complaint {
    if (Complaint complaint = read(value, augment); !complaint.empty()) return complaint;
    return (augment.*field)[0] <= (augment.*field)[1] ? "" : "write the smaller number first";
  };
  return key;
}

}  // namespace

KeysOf<DatasetConfiguration> dataset_keys() {
  using D = DatasetConfiguration;
  return {
      kind_key<D>({"kind", k_both,
                   "`\"idx\"` (MNIST's format, plain or gzip), `\"safetensors\"` (tensors of files, by name), "
                   "`\"image_folder\"` (JPEG, PNG and WebP files: see [your own images](images.md)), `\"synthetic\"` "
                   "(random images, like torchvision's FakeData), `\"tar\"` (shards in WebDataset's layout), "
                   "`\"tokens\"` (text as numbers)",
                   "needed"}),
      text_key(
          {"path", k_both,
           "idx: the folder that holds `train-images-idx3-ubyte`, `train-labels-idx1-ubyte` and the `t10k-*` "
           "pair; safetensors, tar, tokens: a file, a folder of `*.safetensors`, `*.tar` or `*.bin`, or a pattern as "
           "`\"text/train-*.bin\"`, and files count in the order of their names; image_folder: a folder of class "
           "folders, or a `.csv` or `.jsonl` file"},
          &D::path)};
}

KeysOf<SamplingConfiguration> sampling_keys() {
  using S = SamplingConfiguration;
  return {number_key({"fraction", k_both | Changes::run,
                      "so much of the training data is used, drawn by `run.seed`, of each class alike; see [Which "
                      "samples](data.md#which-samples)"},
                     {0.0, 1.0, true}, &S::fraction),
          text_key({"subset", k_both,
                    "a text file of sample numbers, from 0: these alone are used, in this order where that is "
                    "`\"sequential\"`"},
                   &S::subset),
          choice_key({"sampling", Changes::result | Changes::run,
                      "an epoch has each sample once, in an order drawn by seed and epoch. `\"sequential\"`: as they "
                      "lie there; `\"balanced\"`: as many are drawn, with replacement, so that each class comes as "
                      "often as another; `\"weighted\"`: likewise, by `sample_weights`"},
                     {{"shuffle", Sampling::shuffle},
                      {"sequential", Sampling::sequential},
                      {"balanced", Sampling::balanced},
                      {"weighted", Sampling::weighted}},
                     &S::order),
          text_key({"sample_weights", Changes::result,
                    "how often each sample is drawn, relative to the others: of safetensors the name of a tensor "
                    "`[samples]`, else a text file with a number for each sample of the training data"},
                   &S::weights)};
}

KeysOf<SamplingConfiguration> split_keys() {
  return {number_key({"fraction", k_both | Changes::run,
                      "so much of the training data is kept for validation instead, drawn by `run.seed`, of each class "
                      "alike; it is not trained with, and not augmented. 0: none"},
                     {0.0, 1.0}, &SamplingConfiguration::validation_fraction)};
}

KeysOf<ReadingConfiguration> reading_keys() {
  using R = ReadingConfiguration;
  constexpr std::int64_t k_most_workers = 1024;
  auto workers = optional_integer_key(
      {"workers", Changes::nothing,
       "threads of each rank that read the coming micro-batches of training while this one is computed. auto: none, "
       "until reading is seen to hold training up, and then as many as it takes and the node's cores allow; 0: the "
       "thread that trains reads. See [how data is read](data.md#how-data-is-read)"},
      0, "auto", &R::workers);
  workers.values = fmt::format("\"auto\" or a whole number from 0 to {}", k_most_workers);
  workers.read = [read = workers.read, values = workers.values](const ConfigValue& value, R& reading) -> Complaint {
    const auto number = value.integer();
    return number && *number > k_most_workers ? "write " + values : read(value, reading);
  };
  return {std::move(workers),
          number_key({"read_ahead_mb", Changes::nothing,
                      "MiB of host memory that what is read ahead may take on each rank; a micro-batch that is larger "
                      "is read ahead alone"},
                     {0.0, 1 << 20, true}, &R::read_ahead_mb)};
}

KeysOf<AugmentConfiguration> augment_keys() {
  using A = AugmentConfiguration;
  return {integer_key({"crop_padding", k_both,
                       "training images [C, H, W]: each is shifted by up to so many pixels, with zeros coming in"},
                      0, 1 << 16, &A::crop_padding),
          boolean_key({"horizontal_flip", k_both,
                       "half of the training images are mirrored. What is drawn depends on seed, epoch and sample "
                       "alone: the same images on any plan"},
                      &A::horizontal_flip)};
}

KeysOf<AugmentConfiguration> image_augment_keys() {
  using A = AugmentConfiguration;
  return {boolean_key({"random_resized_crop", k_both,
                       "images, of folders or tar archives: a part of each training image is resized to "
                       "`data.image_size`, as torchvision's "
                       "RandomResizedCrop has it; without, its middle is taken, as in validation"},
                      &A::random_resized_crop),
          ascending_key({"crop_scale", Changes::result, "images: from which part of the image's area to which"},
                        {0.0, 1.0, true}, &A::crop_scale),
          ascending_key({"crop_ratio", Changes::result, "images: from which width over height to which"},
                        {0.0, HUGE_VAL, true}, &A::crop_ratio),
          number_key({"brightness", Changes::result,
                      "images: torchvision's ColorJitter, a factor from 1 - x (0 at least) to 1 + x; 0 = none"},
                     {0.0}, &A::brightness),
          number_key({"contrast", Changes::result, "images: likewise"}, {0.0}, &A::contrast),
          number_key({"saturation", Changes::result, "images: likewise"}, {0.0}, &A::saturation),
          number_key({"hue", Changes::result, "images: likewise, a turn of up to so much of the circle"}, {0.0, 0.5},
                     &A::hue),
          integer_key({"rand_augment_ops", Changes::result,
                       "images: how many of torchvision's RandAugment's operations each image goes through; 0 = none"},
                      0, 100, &A::rand_augment_ops),
          integer_key({"rand_augment_magnitude", Changes::result, "images: how strong they are"}, 0, 30,
                      &A::rand_augment_magnitude),
          number_key({"mixup_alpha", k_both,
                      "images: each image is mixed with another of the data set, with a share from Beta(x, x), and so "
                      "are their labels; 0 = none. With `cutmix_alpha`, half of them each"},
                     {0.0}, &A::mixup_alpha),
          number_key({"cutmix_alpha", k_both, "images: likewise, but a rectangle of it is the other's"}, {0.0},
                     &A::cutmix_alpha)};
}

KeysOf<ModelConfiguration> model_keys() {
  using M = ModelConfiguration;
  return {
      kind_key<M>({"kind", k_both | Changes::run,
                   "`\"mlp\"`, `\"resnet\"`, `\"torchscript\"`, `\"exported\"`, `\"plugin\"`", "needed"}),
      text_key({"weights", Changes::result,
                "a file to start from, `.safetensors` or `.pt2`: every parameter and running statistic, under any name "
                "of what is shared; see [trained weights](weights.md)"},
               &M::weights),
      prefix_key(
          {"weights_prefix", Changes::result,
           "what names begin with on one side alone, as `\"bert.\"`: in the file, of which the rest is then left "
           "out, or in the model"},
          &M::weights_prefix),
      patterns_key({"freeze", k_both | Changes::run,
                    "names of parameters that are not trained, `*` for any text and `?` for one character: they have "
                    "no gradient, no decay and no optimizer state"},
                   &M::freeze),
      patterns_key({"reinitialize", Changes::result,
                    "names of parameters and running statistics that begin as PyTorch begins them, from `run.seed`, "
                    "whatever `weights` or the program holds: a new head"},
                   &M::reinitialize),
      integer_key({"num_classes", k_both, "0 = as many as the data has"}, 0, std::int64_t{1} << 31, &M::num_classes)};
}

KeysOf<LossConfiguration> loss_keys() {
  using L = LossConfiguration;
  return {
      kind_key<L>({"kind", k_both,
                   "of class indices; or `\"mse\"`, of outputs in the target's shape, or one-hot against class "
                   "indices; `\"model\"`: a model from Python whose forward takes the inputs and then the target (and "
                   "its weights), and returns the loss's sum and its weight, two scalars"}),
      choice_key({"normalize_by", Changes::result,
                  "what the global batch's summed loss is divided by: the labels that count, each times its weight, as "
                  "PyTorch's `\"mean\"` does; `\"samples\"`: the samples that have one"},
                 {{"samples", NormalizeBy::samples}, {"tokens", NormalizeBy::tokens}}, &L::normalize_by),
      number_key({"label_smoothing", k_both, "cross entropy, 0 to 1"}, {0.0, 1.0}, &L::label_smoothing),
      integer_key(
          {"ignore_index", Changes::result, "cross entropy: labels of this value count for nothing, and are no class"},
          INT64_MIN, k_any, &L::ignore_index),
      numbers_key(
          {"class_weights", Changes::result,
           "cross entropy: a number per class; the loss is divided by the weights' sum, as PyTorch's `\"mean\"` does"},
          {0.0}, &L::class_weights)};
}

KeysOf<OptimizerConfiguration> optimizer_keys() {
  using O = OptimizerConfiguration;
  return {
      kind_key<O>({"kind", k_both | Changes::run, "`\"adamw\"`, `\"adam\"`, `\"sgd\"`: PyTorch's, fused"}),
      number_key({"lr", Changes::result, "at the top of the schedule"}, {0.0}, &O::lr),
      number_key({"weight_decay", Changes::result, ""}, {0.0}, &O::weight_decay),
      groups_key({"groups", k_both,
                  "parameters with options of their own: `[[optimizer.groups]]` with `match` (a name, or a pattern as "
                  "shells know it: `*` for any text, `?` for one character), and `lr` or `weight_decay` or both; a "
                  "parameter belongs to the first group that matches, and the schedule scales every rate alike"}),
      choice_key(
          {"lr_scaling", Changes::result,
           "`lr`, and with it every group's, is meant for batches of `lr_batch_size`: `\"linear\"` multiplies it by "
           "the global batch over that, `\"sqrt\"` by the root of it"},
          {{"none", LrScaling::none}, {"linear", LrScaling::linear}, {"sqrt", LrScaling::square_root}}, &O::lr_scaling),
      integer_key({"lr_batch_size", Changes::result, "for `lr_scaling`: the global batch that `lr` is meant for"}, 1,
                  std::int64_t{1} << 40, &O::lr_batch_size),
      decay_key(
          {"ema_decay", Changes::result,
           "an exponential moving average of the weights is kept beside them, *a* <- *d* *a* + (1 - *d*) *w* after "
           "each step: validation, `eval`, `export` and `predict` take it; see [averaged "
           "weights](best_and_last.md#averaged-weights). 0: none"}),
      limit_key({"max_grad_norm", k_both, "clips by the norm of the whole gradient, after the reduction", "none"},
                &O::max_grad_norm),
      limit_key({"max_grad_value", k_both, "clips each element of the whole gradient, after the reduction", "none"},
                &O::max_grad_value)};
}

KeysOf<ScheduleConfiguration> schedule_keys() {
  using S = ScheduleConfiguration;
  return {
      kind_key<S>({"kind", Changes::result, "`\"linear\"`, `\"cosine\"`, `\"step\"`"}),
      integer_key({"warmup_steps", Changes::result, "the rate rises in a line to `lr`"}, 0, k_any, &S::warmup_steps),
      number_key({"warmup_epochs", Changes::result, "the same in epochs, as 0.5: to the nearest whole step"},
                 {0.0, 1e9}, &S::warmup_epochs),
      number_key({"warmup_fraction", Changes::result, "the same as a share of all steps of the run"}, {0.0, 1.0},
                 &S::warmup_fraction)};
}

}  // namespace onebatch
