// A module, data, a loss and an optimizer of one's own, trained as one: mpirun -np 2 --bind-to none any_module
#include <onebatch/kinds.hpp>
#include <onebatch/trainer.hpp>

#include <torch/torch.h>

class Stripes : public torch::data::Dataset<Stripes> {  // across or down, each wider than the one before
 public:
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor line = torch::arange(8.0).mul(0.5 + 0.01 * static_cast<double>(index)).sin().expand({1, 8, 8});
    const bool across = index % 2 == 0;
    return {across ? line.transpose(1, 2) : line, torch::tensor(across ? 0 : 1)};
  }
  torch::optional<std::size_t> size() const override { return 200; }
};

torch::nn::Sequential make_net(const onebatch::ModelRequest& data) {
  namespace nn = torch::nn;
  return nn::Sequential(nn::Conv2d(data.sample_shape[0], 8, 3), nn::BatchNorm2d(8), nn::ReLU(), nn::Flatten(),
                        nn::Linear(8 * 6 * 6, data.num_classes));
}

int main() {
  const auto world = onebatch::comm::World::create();
  onebatch::register_kind(onebatch::samples_kind("stripes", [](const auto&) { return Stripes(); }));
  onebatch::register_kind(onebatch::module_kind("net", make_net));
  onebatch::register_kind(onebatch::loss_kind("margin", onebatch::Targets::classes, [](const auto& of) {
    return torch::multi_margin_loss(of.outputs, of.targets, 1, 1, {}, at::Reduction::Sum);  // the sum, not the mean
  }));
  onebatch::register_kind(onebatch::optimizer_kind("momentum", {"velocity"}, [](auto& one, const auto& rates) {
    one.parameter.sub_(one.state[0].mul_(0.9).add_(one.gradient), rates.lr);
  }));
  onebatch::Configuration of_run;
  of_run.run.epochs = 5, of_run.batch.global_batch_size = 50;
  of_run.data.train.kind = "stripes", of_run.model.kind = "net", of_run.loss.kind = "margin";
  of_run.optimizer.kind = "momentum", of_run.optimizer.lr = 0.01;
  const auto print = [](const auto& done) { std::printf("loss %.4f\n", done.record.loss); };
  onebatch::Session(of_run, *world, {onebatch::on<onebatch::event::StepDone>(print)}, {}).train();
  world->close();
}
