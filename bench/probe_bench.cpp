// The search for the largest micro-batch against trying sizes until the truth is known, over random models and budgets; beside it what
// tutorials and Lightning do. probe_bench [CASES [BUDGET_SCALE [STEPS_AFTER [SEED]]]]
#include "trainer/device/memory_budget.hpp"
#include "trainer/error.hpp"
#include "trainer/models/trainable_module.hpp"
#include "trainer/probe/find_batch_size.hpp"

#include <ATen/autocast_mode.h>
#include <ATen/ops/rand.h>
#include <torch/nn/functional.h>
#include <torch/nn/modules.h>
#include <torch/optim/adam.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>

namespace onebatch {
namespace {

namespace nn = torch::nn;
using Forward = std::function<at::Tensor(const at::Tensor&)>;
constexpr std::int64_t k_most = 8192;

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

// Every sample attends to every other of the micro-batch, as contrastive losses do: memory grows with the square of its size.
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
    made.budget = static_cast<std::int64_t>(scale_ * 96.0 * 1048576.0 *
                                            std::pow(2048.0 / 96.0, std::uniform_real_distribution<double>(0, 1)(generator_)));
    std::int64_t parameters = 0;
    for (const auto& p : made.module->parameters()) parameters += p.numel() * 4;
    made.budget = std::max(made.budget, 5 * parameters);  // parameters, gradients and Adam's moments, and something for samples
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
    made = {"mlp", layers.ptr(), [layers](const at::Tensor& x) mutable { return layers->forward(x); }, {inputs}, {outputs}};
  }
  void resnet(Case& made) {
    ModelConfiguration configuration;
    configuration.kind = ModelKind::resnet;
    configuration.depth = 18;
    configuration.stem = ResNetStem::cifar;
    const auto module = make_resnet(configuration, 3, 10);
    const std::int64_t side = 8 * integer(1, 4);
    made = {"resnet18", module, [module](const at::Tensor& x) { return module->forward(x, {}); }, {3, side, side}, {10}};
  }
  void gpt(Case& made) {
    const std::int64_t heads = integer(2, 4);
    const std::int64_t length = integer(16, 128);
    Gpt model(integer(100, 1000), heads * 32, integer(1, 4), heads);
    made = {"gpt", model.ptr(), [model](const at::Tensor& x) mutable { return model->forward(x); }, {length}, {length, model->vocabulary}};
  }
  void pairwise(Case& made) {
    const std::int64_t width = integer(16, 256);
    Pairwise model(width, integer(1, 4));
    made = {"quadratic", model.ptr(), [model](const at::Tensor& x) mutable { return model->forward(x); }, {width}, {width}};
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

Found search(const Case& c, ComputeDevice& device, SearchMode mode, std::int64_t most = k_most) {
  const auto start = std::chrono::steady_clock::now();
  const SearchResult result =
      search_batch_size({*c.module, c.forward, c.input_shape, c.output_shape, k_most, most, /*num_iterations=*/1, mode}, device);
  Found found{result.largest_micro_batch, result.trials.size(), 0, 0.0, {}};
  for (const Trial& trial : result.trials) {
    found.failures += trial.out_of_memory ? 1 : 0;
    found.tried.append(std::to_string(trial.size)).append(trial.fits ? " " : "! ");
  }
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return found;
}

// Everything between what is known to fit and what is not, halved until nothing lies between.
std::int64_t truth(const Case& c, ComputeDevice& device, std::int64_t fits) {
  std::int64_t fails = std::min<std::int64_t>(k_most + 1, fits + std::max<std::int64_t>(2, fits / 32));
  // Doubling that begins and ends at one size.
  const auto try_size = [&](std::int64_t size) {
    try {
      const SearchResult result =
          search_batch_size({*c.module, c.forward, c.input_shape, c.output_shape, size, size, 1, SearchMode::power, size}, device);
      return result.largest_micro_batch == size;
    } catch (const DoesNotFitError&) {
      return false;
    }
  };
  while (fails <= k_most && try_size(fails)) {
    fits = fails;
    fails = std::min<std::int64_t>(k_most + 1, 2 * fails);
  }
  while (fails - fits > 1) {
    const std::int64_t middle = fits + (fails - fits) / 2;
    (try_size(middle) ? fits : fails) = middle;
  }
  return fits;
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

int run(int argc, char** argv) {
  const int cases = argc > 1 ? std::atoi(argv[1]) : 200;
  const double scale = argc > 2 ? std::atof(argv[2]) : 1.0;
  const std::int64_t steps = argc > 3 ? std::atoll(argv[3]) : 1000;
  Cases random(argc > 4 ? static_cast<unsigned>(std::atoi(argv[4])) : 1, scale);
  MemoryBudget& budget = MemoryBudget::install();
  std::size_t limited = 0;
  std::int64_t near = 0, above = 0, quick = 0, failures_after = 0;
  std::vector<double> of_power, of_binsearch;
  std::printf("%-10s %-5s %9s %7s %7s %7s %7s %6s   %22s %22s\n", "model", "type", "budget", "true", "found", "ratio", "trials", "oom",
              "power (size/trials/oom)", "binsearch");
  for (int i = 0; i < cases; ++i) {
    budget.set_limit_bytes(MemoryBudget::k_no_limit);
    const Case c = random.next();
    DeviceRequest request;
    request.simulate = {SimulatedDevice{budget.current_bytes() + c.budget, 1.0, {}}};
    const auto device = bind_device(request);
    const Found found = search(c, *device, SearchMode::model);
    const std::int64_t largest = truth(c, *device, found.size);
    const Found power = search(c, *device, SearchMode::power);
    const Found binsearch = search(c, *device, SearchMode::binsearch);
    const double ratio = static_cast<double>(found.size) / static_cast<double>(largest);
    ++limited;
    near += ratio >= 0.98 ? 1 : 0;
    above += ratio > 1.0 ? 1 : 0;
    quick += found.trials <= 6 && found.failures <= 1 ? 1 : 0;
    of_power.push_back(power.seconds / found.seconds);
    of_binsearch.push_back(binsearch.seconds / found.seconds);
    if (steps > 0) failures_after += train(c, apply_margin(found.size, 1, 0.05), steps);
    std::printf("%-10s %-5s %5lld MiB %7lld %7lld %7.4f %7zu %6lld   %9lld/%3zu/%3lld %14lld/%3zu/%3lld  %s\n", c.name.c_str(),
                c.bfloat16 ? "bf16" : "fp32", static_cast<long long>(c.budget >> 20), static_cast<long long>(largest),
                static_cast<long long>(found.size), ratio, found.trials, static_cast<long long>(found.failures),
                static_cast<long long>(power.size), power.trials, static_cast<long long>(power.failures),
                static_cast<long long>(binsearch.size), binsearch.trials, static_cast<long long>(binsearch.failures), found.tried.c_str());
    std::fflush(stdout);
  }
  std::sort(of_power.begin(), of_power.end());
  std::sort(of_binsearch.begin(), of_binsearch.end());
  std::printf(
      "%zu cases: found/true >= 0.98 in %.1f %%, above 1 in %lld; at most 6 trials and 1 out of memory in %.1f %%; %lld out of memory in "
      "%lld steps "
      "after each at margin 0.05\ntime of doubling over ours %.2f, of doubling and bisection %.2f (medians)\n",
      limited, part(near, limited), static_cast<long long>(above), part(quick, limited), static_cast<long long>(failures_after),
      static_cast<long long>(steps), of_power[of_power.size() / 2], of_binsearch[of_binsearch.size() / 2]);
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
  return above == 0 ? 0 : 1;
}

}  // namespace
}  // namespace onebatch

int main(int argc, char** argv) {
  return onebatch::run(argc, argv);
}
