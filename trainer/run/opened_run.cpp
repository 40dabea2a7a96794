#include "trainer/run/opened_run.hpp"

#include "trainer/base/fault_point.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/base/version.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/dataset_kind.hpp"
#include "trainer/data/tar_shards.hpp"
#include "trainer/device/allocator_settings.hpp"
#include "trainer/device/precision.hpp"
#include "trainer/models/loss.hpp"
#include "trainer/models/model_kind.hpp"
#include "trainer/models/start_weights.hpp"
#include "trainer/optim/optimizer.hpp"
#include "trainer/probe/memory_use.hpp"
#include "trainer/replica/output_check.hpp"
#include "trainer/replica/replica.hpp"
#include "trainer/settings/identity.hpp"
#include "trainer/step/chosen_metrics.hpp"

#include <fmt/format.h>
#include <torch/version.h>

#include <cstdlib>
#include <iterator>
#include <sstream>

namespace onebatch {
namespace {

void check_batch(const Configuration& configuration, const Dataset& data) {
  const auto& batch = configuration.batch;
  if (batch.last_batch == LastBatch::drop && batch.global_batch_size > data.size())
    throw UserError(
        fmt::format("batch.last_batch = \"drop\" leaves nothing: the data has {} samples, batch.global_batch_size is "
                    "{}; write a smaller batch, or last_batch = \"exact\"",
                    data.size(), batch.global_batch_size));
}

// Of sequences, which are padded to the longest at hand, without their length.
std::vector<std::int64_t> shape_to_compare(const Dataset& data) {
  std::vector<std::int64_t> shape = data.sample_shape();
  if (!data.lengths().empty() && !shape.empty()) shape.front() = -1;
  return shape;
}

// How many summands stay exact: see Note [Bitwise].
void check_grain(const Configuration& configuration) {
  if (configuration.run.deterministic != Determinism::bitwise) return;
  const std::int64_t batch = configuration.batch.global_batch_size;
  const std::int64_t least = (batch + ReproducibleSum::k_most_calls - 1) / ReproducibleSum::k_most_calls;
  if (configuration.batch.micro_batch_size.at(0) < least)
    throw UserError(fmt::format(
        "run.deterministic = \"bitwise\" sums up to {} micro-batches: write batch.micro_batch_size = {} or more",
        ReproducibleSum::k_most_calls, least));
}

// What the configuration tells the allocator, and what it says otherwise than the process's environment.
std::string allocator_settings_of(const Configuration& configuration, EventStream& events) {
  if (configuration.run.device == DeviceChoice::cpu || !configuration.simulate.empty() || cuda_device_count() == 0)
    return {};
  const GivenToAllocator given = given_to_allocator();
  const AllocatorSettings settings = allocator_settings(configuration.memory, given.text);
  for (const std::string& part : settings.overridden) {
    const std::string key = "memory." + part.substr(0, part.find(':'));
    events.warn(key + " of the configuration goes before " + part + " of " + given.variable);
  }
  return settings.text;
}

void say_what_is_spooled(const DatasetConfiguration& data, EventStream& events) {
  if (data.kind != "tar") return;
  for (const std::string& line : spooled_files(data)) events.info(line);
}

// Ampere and later have it.
bool leaves_tf32_out(const PrecisionConfiguration& precision, const ComputeDevice& device) {
  const std::string capability = device.compute_capability();  // "8.6"; empty: a CPU
  return precision.compute == Precision::float32 && !precision.allow_tf32 && !capability.empty() &&
         std::atoi(capability.c_str()) >= 8;
}

void check_timeline_folder(const std::filesystem::path& file) {
  const auto folder = file.parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw UserError("--timeline " + file.string() + ": there is no folder " + folder.string());
}

}  // namespace

std::vector<std::vector<std::string>> gpus_of_ranks(const Configuration& configuration, comm::Communicator& control) {
  std::string own;
  if (configuration.run.device != DeviceChoice::cpu && configuration.simulate.empty()) {
    for (const std::string& gpu : visible_gpus()) own += gpu + '\n';
  }
  std::vector<std::vector<std::string>> all;
  for (const std::string& text : all_gather_text(control, own)) {
    std::istringstream lines(text);
    all.emplace_back(std::istream_iterator<std::string>(lines), std::istream_iterator<std::string>());
  }
  return all;
}

OpenedRun::OpenedRun(const Configuration& configuration, const comm::World& world, const SessionOptions& options,
                     EventStream& events, const std::vector<std::vector<std::string>>& gpus, OpenFor purpose)
    : configuration_(configuration) {
  fault_point("start", 0);
  open_data();
  say_what_is_spooled(configuration.data.train, events);
  if (configuration.data.validation) say_what_is_spooled(*configuration.data.validation, events);
  if (purpose == OpenFor::training) check_training();
  if (world.rank() == 0) check_timeline_folder(options.timeline_file);  // which writes it
  device = bind_device({.choice = configuration.run.device,
                        .rank = world.rank(),
                        .node_local_rank = world.node_local_rank(),
                        .node_local_size = world.node_local_size(),
                        .allow_shared_device = configuration.comm.allow_shared_device,
                        .gpus_of_ranks = gpus,
                        .simulate = configuration.simulate,
                        .allocator_settings = allocator_settings_of(configuration, events)});
  set_up_arithmetic(configuration);
  if (purpose == OpenFor::training && leaves_tf32_out(configuration.precision, *device))
    events.info(
        "this GPU has TF32, which is off: float32 matrices and convolutions take up to three times as long (a "
        "ResNet-50 on an H100); precision.allow_tf32 = true rounds what goes into them to 10 bits");
  if (const std::string notice = model_notice(configuration.model); !notice.empty()) events.info(notice);
  refuse_if_out_of_memory([&] {
    model = make_model_for(configuration, *data, device->device(), scalar_type(configuration.precision.parameters),
                           purpose == OpenFor::training ? Returned::what_trains : Returned::everything);
  });
  if (const std::string part = trained_part(*model, configuration.model); !part.empty()) events.info(part);
  for (const auto& [name, tensor] : model->parameters()) {
    parameters_bytes_ += static_cast<std::int64_t>(tensor.nbytes());
    if (tensor.requires_grad()) trained_bytes_ += static_cast<std::int64_t>(tensor.nbytes());
  }
}

void OpenedRun::open_data() {
  const std::uint64_t seed = configuration_.run.seed;
  std::optional<std::int64_t> ignored;
  if (targets_of(configuration_.loss) == Targets::classes) ignored = configuration_.loss.ignore_index;
  RunData opened = open_run_data(configuration_.data, seed, ignored);
  data = std::move(opened.train);
  validation = std::move(opened.validation);
  drawing = std::move(opened.drawing);
  given_samples = std::move(opened.given_samples);
  if (!validation || shape_to_compare(*validation) == shape_to_compare(*data)) return;
  throw UserError(
      fmt::format("a sample of data.validation has the shape {}, and one of the training data {}: both go "
                  "through one model, so give them one shape",
                  shape_text(validation->sample_shape()), shape_text(data->sample_shape())));
}

void OpenedRun::check_training() const {
  check_targets(configuration_.loss, *data, num_outputs(configuration_, *data), "data");
  check_batch(configuration_, *data);
  check_augmentation(configuration_.data.augment, *data);
  check_grain(configuration_);
  if (!validation) return;
  check_targets(configuration_.loss, *validation, num_outputs(configuration_, *data), "data.validation");
  static_cast<void>(chosen_metrics(configuration_, *validation, num_outputs(configuration_, *data)));
}

std::vector<AgreedItem> OpenedRun::agreed_items() const {
  std::vector<AgreedItem> items = {{"onebatch", k_version},
                                   {"LibTorch", TORCH_VERSION},
                                   {"MPI", comm::mpi_version()},
                                   {"NCCL", comm::nccl_version()},
                                   {"the device's kind (run.device)", device->device().is_cuda() ? "cuda" : "cpu"},
                                   {"the number of training samples", fmt::to_string(data->size())},
                                   {"the shape of a training sample", shape_text(data->sample_shape())},
                                   {k_given_samples, given_samples}};
  if (!data->digest().empty()) items.push_back({k_data_digest, data->digest()});
  if (validation) {
    items.push_back({"the number of validation samples", fmt::to_string(validation->size())});
    if (!validation->digest().empty()) items.push_back({"the validation data's digest", validation->digest()});
  }
  if (!model->program_digest().empty()) items.push_back({k_program_digest, model->program_digest()});
  for (const auto& [name, tensor] : model->parameters())
    items.push_back(
        {"the parameter " + name, shape_text(tensor.sizes()) + " of " + c10::toString(tensor.scalar_type()) +
                                      (tensor.is_contiguous() ? "" : ", strides " + shape_text(tensor.strides()))});
  return items;
}

std::string OpenedRun::standing_text() const {
  if (parameters_bytes_ == 0) return {};
  MemoryUse memory;
  memory.parameters_bytes = parameters_bytes_;
  memory.gradients_bytes = trained_bytes_;
  memory.optimizer_bytes = trained_bytes_ * states_per_parameter(configuration_.optimizer);
  return " (" + memory_text(memory) + ")";
}

void OpenedRun::refuse_if_out_of_memory(const std::function<void()>& make) const {
  std::string too_large;
  try {
    make();
  } catch (const std::exception& error) {
    if (!is_out_of_memory(error)) throw;
    too_large = fmt::format(
        "{} (limit {}) cannot even hold the model's parameters, gradients and optimizer state{}; use a smaller model, "
        "optimizer.kind = \"sgd\" without momentum, or a device with more memory",
        device->name(), amount(static_cast<double>(device->memory_limit_bytes())), standing_text());
  }
  if (!too_large.empty()) throw DoesNotFitError(too_large);
}

}  // namespace onebatch
