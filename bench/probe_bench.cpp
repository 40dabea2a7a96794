// The search for the largest micro-batch against trying sizes, over random models and budgets: the size found has run,
// and one that is larger by 1 / 0.98 must not. Of every so many cases the true largest size is sought, and beside it
// what tutorials and Lightning do is run.
//   probe_bench [CASES [BUDGET_SCALE [STEPS_AFTER [SEED [COMPARE_EVERY]]]]]
#include "comm/statistics.hpp"
#include "comm/stopwatch.hpp"
#include "trainer/base/error.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/models/resnet.hpp"
#include "trainer/probe/find_batch_size.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/rand.h>
#include <fmt/format.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>

namespace onebatch {
namespace {

namespace nn = torch::nn;
using Forward = std::function<at::Tensor(const at::Tensor&)>;
constexpr std::int64_t k_most = 1000000;

// A block of a language model: attention is quadratic in the sequence, not in the batch.
struct BlockImpl : nn::Module {
  BlockImpl(std::int64_t width, std::int64_t num_heads)
      : heads(num_heads),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({width})))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", nn::Linear(width, 3 * width))),
        out(register_module("out", nn::Linear(width, width))),
        up(register_module("up", nn::Linear(width, 4 * width))),
        down(register_module("down", nn::Linear(4 * width, width))) {}
  at::Tensor forward(at::Tensor x) {
    const auto n = x.size(0);
    const auto length = x.size(1);
    const auto width = x.size(2);
    auto parts = qkv(norm1(x)).view({n, length, 3, heads, width / heads}).permute({2, 0, 3, 1, 4});
    auto scores = parts[0].matmul(parts[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(width / heads));
    x = x + out(scores.softmax(-1).matmul(parts[2]).transpose(1, 2).reshape({n, length, width}));
    return x + down(at::gelu(up(norm2(x))));
  }
  std::int64_t heads;
  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, out, up, down;
};
TORCH_MODULE(Block);

struct GptImpl : nn::Module {
  GptImpl(std::int64_t vocabulary_, std::int64_t width, std::int64_t num_layers, std::int64_t num_heads)
      : vocabulary(vocabulary_),
        tokens(register_module("tokens", nn::Embedding(vocabulary_, width))),
        head(register_module("head", nn::Linear(width, vocabulary_))),
        blocks(register_module("blocks", nn::ModuleList())) {
    for (std::int64_t i = 0; i < num_layers; ++i) blocks->push_back(Block(width, num_heads));
  }
  at::Tensor forward(const at::Tensor& draws) {
    auto x = tokens((draws * static_cast<double>(vocabulary)).to(at::kLong));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    return head(x);
  }
  std::int64_t vocabulary;
  nn::Embedding tokens;
  nn::Linear head;
  nn::ModuleList blocks;
};
TORCH_MODULE(Gpt);

// Every sample attends to every other of the micro-batch, as contrastive losses do: memory grows with the square of its
// size.
struct PairwiseImpl : nn::Module {
  PairwiseImpl(std::int64_t width, std::int64_t num_layers) : layers(register_module("layers", nn::ModuleList())) {
    for (std::int64_t i = 0; i < num_layers; ++i) layers->push_back(nn::Linear(width, width));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers) {
      x = layer->as<nn::Linear>()->forward(x);
      x = x.matmul(x.t()).softmax(-1).matmul(x);
    }
    return x;
  }
  nn::ModuleList layers;
};
TORCH_MODULE(Pairwise);

struct Case {
  std::string name;
  std::shared_ptr<nn::Module> module;
  Forward forward;
  std::vector<std::int64_t> input_shape, output_shape;
  std::int64_t budget = 0;
  bool bfloat16 = false;
};

// The module's forward, in bfloat16 where its operators allow.
Forward autocast(Forward forward) {
  return [forward = std::move(forward)](const at::Tensor& inputs) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    struct End {
      ~End() {
        at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(at::kCPU, false);
      }
    } const end;
    return forward(inputs).to(at::kFloat);
  };
}

class Cases {
 public:
  Cases(unsigned seed, double scale) : generator_(seed), scale_(scale) {}

  Case next() {
    Case made;
    switch (integer(0, 3)) {
      case 0: mlp(made); break;
      case 1: resnet(made); break;
      case 2: gpt(made); break;
      default: pairwise(made); break;
    }
    made.bfloat16 = integer(0, 1) == 1;
    if (made.bfloat16) made.forward = autocast(made.forward);
    made.budget = static_cast<std::int64_t>(
        scale_ * 96.0 * 1048576.0 * std::pow(2048.0 / 96.0, std::uniform_real_distribution<double>(0, 1)(generator_)));
    std::int64_t parameters = 0;
    for (const auto& p : made.module->parameters()) parameters += p.numel() * 4;
    // Parameters, gradients and Adam's moments, and something for samples.
    made.budget = std::max(made.budget, 5 * parameters);
    return made;
  }

 private:
  std::int64_t integer(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(generator_);
  }

  void mlp(Case& made) {
    const std::int64_t inputs = integer(64, 2048);
    const std::int64_t outputs = integer(10, 1000);
    nn::Sequential layers;
    std::int64_t width = inputs;
    for (std::int64_t i = integer(1, 6); i > 0; --i) {
      const std::int64_t next = integer(64, 512);
      layers->push_back(nn::Linear(width, next));
      layers->push_back(nn::ReLU());
      width = next;
    }
    layers->push_back(nn::Linear(width, outputs));
    made = {
        "mlp", layers.ptr(), [layers](const at::Tensor& x) mutable { return layers->forward(x); }, {inputs}, {outputs}};
  }
  void resnet(Case& made) {
    ModelConfiguration configuration;
    configuration.kind = "resnet";
    configuration.depth = 18;
    configuration.stem = ResNetStem::cifar;
    const auto module = make_resnet(configuration, 3, 10);
    const std::int64_t side = 8 * integer(1, 4);
    made = {
        "resnet18", module, [module](const at::Tensor& x) { return module->forward(x, {}); }, {3, side, side}, {10}};
  }
  void gpt(Case& made) {
    const std::int64_t heads = integer(2, 4);
    const std::int64_t length = integer(16, 128);
    Gpt model(integer(100, 1000), heads * 32, integer(1, 4), heads);
    made = {"gpt",
            model.ptr(),
            [model](const at::Tensor& x) mutable { return model->forward(x); },
            {length},
            {length, model->vocabulary}};
  }
  void pairwise(Case& made) {
    const std::int64_t width = integer(16, 256);
    Pairwise model(width, integer(1, 4));
    made = {
        "quadratic", model.ptr(), [model](const at::Tensor& x) mutable { return model->forward(x); }, {width}, {width}};
  }

  std::mt19937 generator_;
  double scale_;
};

struct Found {
  std::int64_t size = 0;
  std::size_t trials = 0;
  std::int64_t failures = 0;
  double seconds = 0.0;
  std::string tried;
};

Found search(const Case& c, ComputeDevice& device, ProbeMode mode, std::int64_t most = k_most) {
  const comm::Stopwatch watch;
  const SearchResult result = search_batch_size(
      {*c.module, c.forward, c.input_shape, c.output_shape, k_most, most, /*num_iterations=*/1, mode}, device);
  Found found{result.largest_micro_batch, result.trials.size(), 0, 0.0, {}};
  for (const Trial& trial : result.trials) {
    found.failures += trial.out_of_memory ? 1 : 0;
    found.tried.append(fmt::to_string(trial.size)).append(trial.fits ? " " : "! ");
  }
  found.seconds = watch.seconds();
  return found;
}

// Doubling that begins and ends at one size.
bool fits(const Case& c, ComputeDevice& device, std::int64_t size) {
  try {
    const SearchResult result = search_batch_size(
        {*c.module, c.forward, c.input_shape, c.output_shape, size, size, 1, ProbeMode::power, size}, device);
    return result.largest_micro_batch == size;
  } catch (const DoesNotFitError&) {
    return false;
  }
}

// The least size that would make `found` less than 0.98 of it.
std::int64_t too_much_more(std::int64_t found) {
  return std::min(k_most + 1, found * 100 / 98 + 1);
}

// Everything between what is known to fit and what is not, halved until nothing lies between.
std::int64_t truth(const Case& c, ComputeDevice& device, std::int64_t known) {
  std::int64_t fails = too_much_more(known);
  while (fails <= k_most && fits(c, device, fails)) {
    known = fails;
    fails = std::min<std::int64_t>(k_most + 1, 2 * known);
  }
  while (fails - known > 1) {
    const std::int64_t middle = known + (fails - known) / 2;
    (fits(c, device, middle) ? known : fails) = middle;
  }
  return known;
}

// The trainer's user after the probe: his own loop, at the size less the margin.
std::int64_t train(const Case& c, std::int64_t size, std::int64_t steps) {
  torch::optim::Adam adam(c.module->parameters(), torch::optim::AdamOptions(0.0));
  std::int64_t failures = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    try {
      auto shape = c.input_shape;
      shape.insert(shape.begin(), size);
      auto target = c.output_shape;
      target.insert(target.begin(), size);
      adam.zero_grad(/*set_to_none=*/false);
      at::mse_loss(c.forward(at::rand(shape)), at::rand(target), at::Reduction::Sum).backward();
      adam.step();
    } catch (const std::exception& error) {
      if (!is_out_of_memory(error)) throw;
      ++failures;
    }
  }
  return failures;
}

double part(std::int64_t count, std::size_t of) {
  return 100.0 * static_cast<double>(count) / static_cast<double>(std::max<std::size_t>(1, of));
}

struct Tally {
  std::size_t cases = 0;
  std::int64_t near = 0, above = 0, quick = 0, failures_after = 0;
  std::vector<double> of_power, of_binsearch;  // their times over ours

  void add(const Found& found, bool is_near) {
    ++cases;
    near += is_near ? 1 : 0;
    quick += found.trials <= 6 && found.failures <= 1 ? 1 : 0;
  }
};

std::string compared(const Case& c, ComputeDevice& device, const Found& found, Tally& tally) {
  const std::int64_t largest = truth(c, device, found.size);
  const Found power = search(c, device, ProbeMode::power);
  const Found binsearch = search(c, device, ProbeMode::binsearch);
  tally.above += found.size > largest ? 1 : 0;
  tally.of_power.push_back(power.seconds / found.seconds);
  tally.of_binsearch.push_back(binsearch.seconds / found.seconds);
  return fmt::format(
      "true {}, ours {:.4f} of it; doubling {} in {} trials ({} out of memory), and bisection {} in {} ({})",
      static_cast<long>(largest), static_cast<double>(found.size) / static_cast<double>(largest),
      static_cast<long>(power.size), power.trials, static_cast<long>(power.failures), static_cast<long>(binsearch.size),
      binsearch.trials, static_cast<long>(binsearch.failures));
}

int run(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 200;
  const double scale = argc > 2 ? std::atof(argv[2]) : 1.0;
  const std::int64_t steps = argc > 3 ? std::atoll(argv[3]) : 1000;
  Cases random(argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 1, scale);
  const int compare_every = std::max(1, argc > 5 ? std::atoi(argv[5]) : 1);
  MemoryBudget& budget = MemoryBudget::install();
  Tally tally;
  for (int i = 0; i < cases; ++i) {
    budget.set_limit_bytes(MemoryBudget::k_no_limit);
    const Case c = random.next();
    DeviceRequest request;
    request.simulate = {SimulatedDevice{budget.current_bytes() + c.budget, 1.0, {}, {}}};
    const auto device = bind_device(request);
    const Found found = search(c, *device, ProbeMode::model);
    const bool is_near = too_much_more(found.size) > k_most || !fits(c, *device, too_much_more(found.size));
    tally.add(found, is_near);
    const std::string beside = i % compare_every == 0 ? compared(c, *device, found, tally) : "";
    const std::int64_t after = train(c, apply_margin(found.size, 1, 0.05), steps);
    tally.failures_after += after;
    std::printf(
        "%-10s %s %4ld MiB: %5ld found, %s, in %zu trials (%ld out of memory): %s %s; then %ld of %ld steps out of "
        "memory\n",
        c.name.c_str(), c.bfloat16 ? "bf16" : "fp32", static_cast<long>(c.budget >> 20), static_cast<long>(found.size),
        is_near ? "at least 0.98" : "less than 0.98", found.trials, static_cast<long>(found.failures),
        found.tried.c_str(), beside.c_str(), static_cast<long>(after), static_cast<long>(steps));
    std::fflush(stdout);
  }
  std::printf(
      "%zu cases: found/true >= 0.98 in %.1f %%, above 1 in %ld of %zu compared; at most 6 trials and 1 out of memory "
      "in %.1f %%; %ld out of memory in %ld steps after each at margin 0.05\ntime of doubling over ours %.2f, of "
      "doubling and bisection %.2f (medians)\n",
      tally.cases, part(tally.near, tally.cases), static_cast<long>(tally.above), tally.of_power.size(),
      part(tally.quick, tally.cases), static_cast<long>(tally.failures_after), static_cast<long>(steps),
      comm::median(tally.of_power), comm::median(tally.of_binsearch));
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
  return tally.above == 0 ? 0 : 1;
}

}  // namespace
}  // namespace onebatch

int main(int argc, char** argv) {
  return onebatch::run(argc, argv);
}
