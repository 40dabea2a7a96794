#include "trainer/run/prediction.hpp"

#include "comm/long_work.hpp"
#include "trainer/base/shape_text.hpp"
#include "trainer/checkpoint/run_checkpoint.hpp"
#include "trainer/data/padding.hpp"
#include "trainer/data/pipe_command.hpp"
#include "trainer/device/precision.hpp"
#include "trainer/io/row_file.hpp"
#include "trainer/io/tensor_file.hpp"
#include "trainer/run/built_in_kinds.hpp"
#include "trainer/run/identity.hpp"
#include "trainer/run/opened_run.hpp"
#include "trainer/run/skipped_files.hpp"
#include "trainer/step/model_outputs.hpp"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace onebatch {
namespace {

// A block is the same on any ranks, so that the kernels that compute a sample are too.
constexpr std::int64_t k_least_samples = 3;  // so that none is left alone, where three fit
constexpr std::int64_t k_most_samples = 256;
constexpr std::int64_t k_most_bytes = std::int64_t{32} << 20;
constexpr std::int64_t k_numbers_at_once = 65536;

using Bytes = std::vector<std::byte>;

// What the file holds, seen from some samples' outputs.
std::vector<RowTensor> tensors_of(const std::vector<at::Tensor>& outputs, std::int64_t samples) {
  std::vector<RowTensor> tensors = {{"sample", "I64", {samples}, sizeof(std::int64_t)}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    std::vector<std::int64_t> shape = outputs[i].sizes().vec();
    shape[0] = samples;
    tensors.push_back({outputs.size() == 1 ? "outputs" : fmt::format("output_{}", i),
                       dtype_of_type(outputs[i].scalar_type()), shape,
                       static_cast<std::uint64_t>(outputs[i].element_size())});
  }
  return tensors;
}

std::string text_of(const std::vector<RowTensor>& tensors) {
  std::string text;
  for (const RowTensor& tensor : tensors)
    text += fmt::format("{}{} {} of {}", text.empty() ? "" : ", ", tensor.name, shape_text(tensor.shape), tensor.dtype);
  return text;
}

class Prediction {
 public:
  Prediction(const Configuration& configuration, comm::World& world, EventStream& events,
             const PredictionRequest& request)
      : control_(world.control()), events_(events), request_(request) {
    const auto gpus = gpus_of_ranks(configuration, control_);
    agree(control_, [&] {
      const comm::LongWork reading(control_, "opening data and device", patience_with_commands(configuration.data));
      opened_.emplace(configuration, world, SessionOptions{}, events, gpus, OpenFor::prediction);
    });
    check_same(control_, opened_->agreed_items());
    place_threads(configuration, *opened_->device, control_);
    choose_data();
    checkpoint_ = choose_checkpoint({}, request.checkpoint, events, control_);
    if (load_model(checkpoint_, *opened_->model, control_, request.weights))
      events.info("with the averaged weights (optimizer.ema_decay); --weights raw takes those that were trained");
    warn_of_another_program(checkpoint_, *opened_->model, control_, events);
    if (request.data == PredictedData::validation)
      warn_of_other_split(checkpoint_, configuration, *opened_->data, opened_->given_samples, control_, events);
    outputs_.emplace(configuration, *opened_->model, opened_->device->device());
  }

  PredictionResult run() {
    settle_tensors();
    std::optional<RowFile> file;
    const bool writes = control_.rank() == 0;
    agree_on_rank_0(control_, [&] {
      file.emplace(request_.target, tensors_, std::map<std::string, std::string>{{"format", "pt"}});
      write_numbers(*file);
    });
    const std::int64_t blocks = num_blocks();
    for (std::int64_t first = 0; first < blocks; first += control_.size()) {
      control_.set_activity(fmt::format("predicting from sample {} on", begin_of(first)));
      agree(control_, [&] { compute(first + control_.rank()); });
      for (std::int64_t block = first; block < std::min(blocks, first + control_.size()); ++block)
        hand_over(static_cast<int>(block - first), block, writes ? &*file : nullptr);
    }
    agree_on_rank_0(control_, [&] { file->commit(); });
    say_skipped();
    PredictionResult result{checkpoint_, data_->size(), {}};
    for (const RowTensor& tensor : tensors_) result.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
    return result;
  }

 private:
  void choose_data() {
    if (request_.data == PredictedData::validation && !opened_->validation)
      throw AgreedError(ExitCode::user_error,
                        "predict takes the validation data, and there are none: write [data.validation], or --data "
                        "train for the training data");
    data_.emplace(chosen(), longest_of(chosen()));  // rows of one shape
  }

  [[nodiscard]] const Dataset& chosen() const {
    return request_.data == PredictedData::train ? *opened_->data : *opened_->validation;
  }

  void say_skipped() {
    std::set<std::string> skipped;
    name_skipped_files(chosen(), skipped, control_, events_);
    count_skipped_files(skipped, "have the outputs of a grey image in the file", events_);
  }

  // Of the first two samples: a single one is what some models cannot take.
  void settle_tensors() {
    agree(control_, [&] {
      std::vector<std::int64_t> samples(static_cast<std::size_t>(std::min<std::int64_t>(2, data_->size())));
      std::iota(samples.begin(), samples.end(), 0);
      opened_->refuse_if_out_of_memory([&] { tensors_ = tensors_of(outputs_->of(*data_, samples), data_->size()); });
    });
    check_same(control_, {{"what the model returns", text_of(tensors_)}});
    std::int64_t bytes = 1;
    for (const RowTensor& tensor : tensors_) bytes += static_cast<std::int64_t>(tensor.row_bytes());
    block_ = std::clamp<std::int64_t>(k_most_bytes / bytes, k_least_samples, k_most_samples);
    at_once_ = block_;
  }

  void write_numbers(RowFile& file) const {
    for (std::int64_t first = 0; first < data_->size(); first += k_numbers_at_once) {
      std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(k_numbers_at_once, data_->size() - first)));
      std::iota(numbers.begin(), numbers.end(), first);
      const std::vector<std::int64_t> in_the_data = origins_of(*data_, numbers);
      file.write(0, first, std::as_bytes(std::span(in_the_data)));
    }
  }

  [[nodiscard]] std::int64_t num_blocks() const { return (data_->size() + block_ - 1) / block_; }
  // Blocks are of nearly one size: a last one of a single sample is what some models cannot take.
  [[nodiscard]] std::int64_t begin_of(std::int64_t block) const {
    const std::int64_t blocks = num_blocks();
    if (block >= blocks) return data_->size();
    return block * (data_->size() / blocks) + std::min(block, data_->size() % blocks);
  }

  // This rank's block, where there is one left. Where it does not fit at once it is halved, and so are those after it.
  void compute(std::int64_t block) {
    bytes_.assign(tensors_.size(), {});
    const std::int64_t end = begin_of(block + 1);
    for (std::int64_t first = begin_of(block); first < end;) {
      const std::int64_t left = end - first;
      const std::int64_t parts = (left + at_once_ - 1) / at_once_;
      std::vector<std::int64_t> samples(static_cast<std::size_t>((left + parts - 1) / parts));
      std::iota(samples.begin(), samples.end(), first);
      if (!try_samples(samples)) {
        at_once_ = (at_once_ + 1) / 2;
        continue;
      }
      first += std::ssize(samples);
      control_.note_progress();
    }
  }

  bool try_samples(const std::vector<std::int64_t>& samples) {
    std::vector<at::Tensor> outputs;
    try {
      outputs = outputs_->of(*data_, samples);
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error) || samples.size() == 1) throw;
    }
    if (outputs.empty()) {
      opened_->device->empty_cache();
      return false;
    }
    const std::vector<RowTensor> found = tensors_of(outputs, data_->size());
    if (text_of(found) != text_of(tensors_))
      throw UserError(
          fmt::format("the model returns {} for some samples and {} for others: rows of one shape are needed",
                      text_of(tensors_), text_of(found)));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const Bytes own = host_bytes(outputs[i]);
      bytes_[i + 1].insert(bytes_[i + 1].end(), own.begin(), own.end());
    }
    return true;
  }

  // A block's outputs to rank 0, which writes them.
  void hand_over(int owner, std::int64_t block, RowFile* file) {
    const std::int64_t first = begin_of(block);
    const auto rows = static_cast<std::size_t>(begin_of(block + 1) - first);
    for (std::size_t i = 1; i < tensors_.size(); ++i) {
      Bytes received;
      Bytes& bytes = control_.rank() == owner ? bytes_[i] : received;
      bytes.resize(rows * tensors_[i].row_bytes());
      control_.broadcast(bytes.data(), bytes.size(), owner);
      agree_on_rank_0(control_, [&] { file->write(i, first, bytes); });
    }
  }

  comm::Communicator& control_;
  EventStream& events_;
  const PredictionRequest& request_;
  std::optional<OpenedRun> opened_;
  std::optional<PaddedTo> data_;
  std::optional<ModelOutputs> outputs_;
  std::filesystem::path checkpoint_;
  std::vector<RowTensor> tensors_;  // "sample", and the outputs
  std::int64_t block_ = 1;          // samples, at most
  std::int64_t at_once_ = 1;        // of them, on this rank
  std::vector<Bytes> bytes_;        // of this rank's block, by tensor
};

}  // namespace

PredictionResult predict(const Configuration& configuration, comm::World& world, EventStream& events,
                         const PredictionRequest& request) {
  register_built_in_kinds();
  world.set_timeout_seconds(configuration.comm.timeout_seconds);
  const at::NoGradGuard no_grad;
  return Prediction(configuration, world, events, request).run();
}

}  // namespace onebatch
