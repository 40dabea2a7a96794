// What is read ahead is what would have been read, in any order of announcing and taking, and takes no more memory than
// was said.
#include "trainer/data/loader.hpp"

#include "trainer/base/error.hpp"
#include "trainer/data/augment.hpp"
#include "trainer/data/read_ahead.hpp"
#include "trainer/data/sample_order.hpp"
#include "trainer/data/wait_share.hpp"
#include "trainer/device/memory_budget.hpp"
#include "trainer/device/precision.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <new>
#include <numeric>
#include <string>
#include <thread>

namespace onebatch {
namespace {

using std::chrono::milliseconds;
using Numbers = std::vector<std::int64_t>;

Numbers numbers(std::int64_t first, std::int64_t count) {
  Numbers made(static_cast<std::size_t>(count));
  std::iota(made.begin(), made.end(), first);
  return made;
}

// A row of 1,000 bytes for each sample, that holds its number.
Batch rows_of(const ReadRequest& request) {
  std::vector<at::Tensor> rows;
  for (const std::int64_t sample : request.samples)
    rows.push_back(at::full({1, 125}, static_cast<double>(sample + 1000 * request.epoch), at::kDouble));
  return {{at::cat(rows)}, {}, {}};
}

double first_of(const Batch& batch) {
  return batch.inputs.front().const_data_ptr<double>()[0];
}

// A door that reads stand before until it is opened.
class Door {
 public:
  void open() {
    {
      const std::scoped_lock lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void wait_for_arrivals(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= count; });
  }
  int arrived() {
    const std::scoped_lock lock(mutex_);
    return arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

// Until all that can be read ahead is.
void wait_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(done());
}

TEST(LoaderTest, gives_each_request_what_reading_it_gives) {
  for (const std::int64_t workers : {0, 1, 4}) {
    Loader loader(rows_of, {});
    loader.add_workers(workers);
    EXPECT_EQ(loader.workers(), workers);
    for (std::int64_t epoch = 0; epoch < 30; ++epoch) {
      std::vector<Numbers> samples;
      std::vector<ReadRequest> requests;
      for (std::int64_t i = 0; i < 7; ++i) samples.push_back(numbers(100 * i, 1 + (i * 5 + epoch) % 9));
      for (const Numbers& some : samples) requests.push_back({some, epoch, 0});
      loader.announce(requests);
      for (const ReadRequest& request : requests) {
        const auto taken = loader.take(request);
        EXPECT_TRUE(!taken || at::equal(taken->inputs.front(), rows_of(request).inputs.front()));
        EXPECT_TRUE(!taken || workers > 0);
      }
      EXPECT_EQ(loader.num_announced(), 0);
    }
  }
}

TEST(LoaderTest, what_differs_in_anything_is_another_request) {
  Loader loader(rows_of, {});
  loader.add_workers(1);
  const Numbers one = numbers(3, 4);
  const Numbers shorter = numbers(3, 3);
  const std::array<ReadRequest, 1> announced = {{{one, 2, 5}}};
  loader.announce(announced);
  EXPECT_FALSE(loader.take({shorter, 2, 5}).has_value());
  EXPECT_FALSE(loader.take({one, 1, 5}).has_value());
  EXPECT_FALSE(loader.take({one, 2, 6}).has_value());
  EXPECT_EQ(loader.num_announced(), 1);
  wait_until([&] { return loader.most_bytes_held() == 4000; });
  const auto taken = loader.take({one, 2, 5});
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(first_of(*taken), 2003.0);
  EXPECT_FALSE(loader.take({one, 2, 5}).has_value()) << "a step that is done again reads anew";
}

TEST(LoaderTest, what_is_passed_over_or_forgotten_gives_its_room_to_others) {
  Loader loader(rows_of, {.most_bytes = 4000});
  loader.add_workers(2);
  const std::vector<Numbers> samples = {numbers(0, 4), numbers(4, 4), numbers(8, 4)};
  const std::array<ReadRequest, 3> all = {{{samples[0], 0, 0}, {samples[1], 0, 0}, {samples[2], 0, 0}}};
  loader.announce(all);
  wait_until([&] { return loader.most_bytes_held() == 4000; });
  loader.take(all[1]);  // passes the first over: read by now, or the caller's to read
  EXPECT_EQ(loader.num_announced(), 1);
  loader.forget();
  EXPECT_EQ(loader.num_announced(), 0);
  const std::array<ReadRequest, 1> anew = {{{samples[0], 1, 0}}};
  loader.announce(anew);
  std::optional<Batch> taken;
  wait_until([&] {
    if (!taken) {
      std::this_thread::sleep_for(milliseconds(5));
      taken = loader.take(anew[0]);
      if (!taken) loader.announce(anew);
    }
    return taken.has_value();
  });
  EXPECT_EQ(first_of(*taken), 1000.0);
}

TEST(LoaderTest, holds_no_more_bytes_than_it_may) {
  constexpr std::int64_t k_batches = 200;
  for (const std::int64_t most : {std::int64_t{1}, std::int64_t{9000}, std::int64_t{40000}}) {
    std::atomic<std::int64_t> held{0};
    std::atomic<std::int64_t> most_held{0};
    Loader loader(
        [&](const ReadRequest& request) {
          Batch batch = rows_of(request);
          const std::int64_t now = held += static_cast<std::int64_t>(batch.inputs.front().nbytes());
          std::int64_t seen = most_held;
          while (seen < now && !most_held.compare_exchange_weak(seen, now)) {
          }
          return batch;
        },
        {.most_bytes = most});
    loader.add_workers(4);
    std::vector<Numbers> samples;
    std::vector<ReadRequest> requests;
    for (std::int64_t i = 0; i < k_batches; ++i) samples.push_back(numbers(i, i % 2 == 0 ? 4 : 3));
    for (const Numbers& some : samples) requests.push_back({some, 0, 0});
    loader.announce(requests);
    std::int64_t read_ahead = 0;
    for (const ReadRequest& request : requests) {
      if (read_ahead % 16 == 0) std::this_thread::sleep_for(milliseconds(2));
      const auto taken = loader.take(request);
      if (!taken) continue;
      ++read_ahead;
      held -= static_cast<std::int64_t>(taken->inputs.front().nbytes());
    }
    EXPECT_GT(read_ahead, 0);
    // One that is larger is alone; and the test lags behind by the one that it has just taken.
    EXPECT_LE(most_held, std::max<std::int64_t>(most, 4000) + 4000);
    EXPECT_LE(loader.most_bytes_held(), std::max<std::int64_t>(most, 4000));
  }
}

TEST(LoaderTest, a_failure_is_thrown_where_its_batch_is_taken_and_nowhere_else) {
  Loader loader(
      [](const ReadRequest& request) -> Batch {
        if (request.samples[0] == 1) throw UserError("a.png is no picture");
        if (request.samples[0] == 2) throw std::bad_alloc();
        return rows_of(request);
      },
      {});
  loader.add_workers(1);
  const std::vector<Numbers> samples = {{0}, {1}, {2}, {3}};
  std::vector<ReadRequest> requests;
  for (const Numbers& some : samples) requests.push_back({some, 0, 0});
  loader.announce(requests);
  wait_until([&] { return loader.most_bytes_held() == 2000; });
  EXPECT_EQ(first_of(loader.take(requests[0]).value()), 0.0);
  EXPECT_THROW(loader.take(requests[1]), UserError);
  EXPECT_FALSE(loader.take(requests[2]).has_value()) << "without memory whoever trains tries itself";
  EXPECT_EQ(first_of(loader.take(requests[3]).value()), 3.0);
}

TEST(LoaderTest, reads_nothing_while_paused) {
  Door door;
  std::atomic<int> reads{0};
  Loader loader(
      [&](const ReadRequest& request) {
        ++reads;
        door.pass();
        return rows_of(request);
      },
      {});
  loader.add_workers(2);
  const std::vector<Numbers> samples = {{0}, {1}, {2}};
  std::vector<ReadRequest> requests;
  for (const Numbers& some : samples) requests.push_back({some, 0, 0});
  loader.announce(requests);
  door.wait_for_arrivals(1);  // the first is alone, since nobody knows its size
  EXPECT_EQ(reads, 1);
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(50));
    door.open();
  });
  {
    const Loader::Paused paused(&loader);  // waits for it
    opener.join();
    std::this_thread::sleep_for(milliseconds(50));
    EXPECT_EQ(reads, 1);
    EXPECT_FALSE(loader.take(requests[1]).has_value());
  }
  wait_until([&] { return reads == 2; });
  EXPECT_EQ(first_of(loader.take(requests[2]).value_or(rows_of(requests[2]))), 2.0);
}

TEST(LoaderTest, workers_have_a_name_and_take_no_signals_but_crashes_of_their_own) {
  std::string name(16, '\0');
  sigset_t blocked;
  sigemptyset(&blocked);
  int threads = 0;
  Loader loader(
      [&](const ReadRequest& request) {
        pthread_getname_np(pthread_self(), name.data(), name.size());
        pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        threads = at::get_num_threads();
        return rows_of(request);
      },
      {.set_up = [] { use_one_thread_here(); }});
  loader.add_workers(1);
  const int before = at::get_num_threads();
  const Numbers one = {1};
  const std::array<ReadRequest, 1> request = {{{one, 0, 0}}};
  loader.announce(request);
  wait_until([&] { return loader.most_bytes_held() == 1000; });
  ASSERT_TRUE(loader.take(request[0]).has_value());
  EXPECT_STREQ(name.c_str(), "data worker 0");
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM})
    EXPECT_EQ(sigismember(&blocked, number), 1);
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT}) EXPECT_EQ(sigismember(&blocked, number), 0);
  EXPECT_EQ(threads, 1);
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST(LoaderTest, ends_though_a_disk_never_answers) {
  auto door = std::make_shared<Door>();
  const auto start = std::chrono::steady_clock::now();
  {
    Loader loader(
        [door](const ReadRequest& request) {
          door->pass();
          return rows_of(request);
        },
        {});
    loader.add_workers(1);
    const Numbers one = {1};
    const std::array<ReadRequest, 1> request = {{{one, 0, 0}}};
    loader.announce(request);
    door->wait_for_arrivals(1);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  door->open();
}

TEST(UncountedMemoryTest, counts_from_where_it_is_taken_until_it_is_freed) {
  MemoryBudget& budget = MemoryBudget::install();
  const std::int64_t before = budget.current_bytes();
  at::Tensor tensor;
  {
    const UncountedMemory of_the_host;
    tensor = at::full({1000}, 1.0, at::kDouble);
    EXPECT_EQ(budget.current_bytes(), before);
  }
  const at::Tensor other = at::full({10}, 1.0, at::kDouble);
  EXPECT_EQ(budget.current_bytes(), before + 80);
  MemoryBudget::count(other.storage().data_ptr());
  EXPECT_EQ(budget.current_bytes(), before + 80) << "it is counted already";
  budget.set_limit_bytes(before + 8000);
  EXPECT_THROW(MemoryBudget::count(tensor.storage().data_ptr()), c10::OutOfMemoryError);
  budget.set_limit_bytes(MemoryBudget::k_no_limit);
  EXPECT_EQ(budget.current_bytes(), before + 80);
  MemoryBudget::count(tensor.storage().data_ptr());
  EXPECT_EQ(budget.current_bytes(), before + 8080);
  tensor.reset();
  EXPECT_EQ(budget.current_bytes(), before + 80);
  {
    const UncountedMemory of_the_host;
    tensor = at::full({1000}, 1.0, at::kDouble);
  }
  tensor.reset();
  EXPECT_EQ(budget.current_bytes(), before + 80);
}

// Images as training draws them, and the CPU.
class ReadAheadTest : public testing::Test {
 protected:
  static constexpr std::int64_t k_size = 300;

  ReadAheadTest() {
    DeviceRequest request;
    request.simulate = {SimulatedDevice{}};
    device_ = bind_device(request);
    DatasetConfiguration images;
    images.kind = "synthetic";
    images.shape = {3, 12, 12};
    images.size = k_size;
    data_ = open_dataset(images, Split::train, 5);
    augment_.crop_padding = 3;
    augment_.horizontal_flip = true;
  }

  Loader::Read reader() {
    return [this](const ReadRequest& request) {
      return read_of(TrainingData(*data_, augment_, {7, request.epoch}), request.samples, at::kFloat, request.length);
    };
  }

  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<Dataset> data_;
  AugmentConfiguration augment_;
};

TEST_F(ReadAheadTest, any_workers_and_any_micro_batches_give_the_same_images) {
  Numbers order = epoch_order(3, 1, k_size);
  for (const std::int64_t epoch : {0, 1}) {
    const TrainingData changed(*data_, augment_, {7, epoch});
    const Batch whole = changed.read(order, at::kFloat);
    for (const std::int64_t workers : {0, 1, 4}) {
      for (const std::size_t size : {1U, 7U, 64U, 300U}) {
        Loader loader(reader(), {.most_bytes = 1 << 20});
        loader.add_workers(workers);
        std::vector<ReadRequest> requests;
        for (std::size_t begin = 0; begin < order.size(); begin += size)
          requests.push_back({std::span(order).subspan(begin, std::min(size, order.size() - begin)), epoch, 0});
        loader.announce(requests);
        const ReadAhead ahead(changed, *device_, nullptr, {&loader, epoch}, 0);
        std::vector<at::Tensor> images;
        std::vector<at::Tensor> targets;
        for (const ReadRequest& request : requests) {
          const Batch batch = ahead.read(request.samples, at::kFloat);
          images.push_back(batch.inputs.front());
          targets.push_back(batch.targets);
        }
        EXPECT_TRUE(at::equal(at::cat(images), whole.inputs.front())) << workers << " workers, " << size;
        EXPECT_TRUE(at::equal(at::cat(targets), whole.targets)) << workers << " workers, " << size;
        EXPECT_EQ(ahead.waits().size(), requests.size());
      }
    }
  }
}

TEST_F(ReadAheadTest, counts_for_the_device_once_it_is_taken) {
  MemoryBudget& budget = MemoryBudget::install();
  Loader loader(reader(), {});
  loader.add_workers(1);
  const Numbers samples = numbers(0, 64);
  const std::array<ReadRequest, 1> request = {{{samples, 0, 0}}};
  const std::int64_t bytes = 64 * (3 * 12 * 12 * 4 + 8);
  const std::int64_t before = budget.current_bytes();
  budget.reset_peak();
  loader.announce(request);
  wait_until([&] { return loader.most_bytes_held() == bytes; });
  EXPECT_EQ(budget.peak_bytes(), before);
  const TrainingData changed(*data_, augment_, {7, 0});
  const ReadAhead ahead(changed, *device_, nullptr, {&loader, 0}, 0);
  {
    const Batch batch = ahead.read(samples, at::kFloat);
    EXPECT_EQ(budget.current_bytes(), before + bytes);
  }
  EXPECT_EQ(budget.current_bytes(), before);
}

class BrokenSample final : public Dataset {
 public:
  std::int64_t size() const override { return 10; }
  std::vector<std::int64_t> sample_shape() const override { return {125}; }
  std::int64_t num_classes() const override { return 0; }
  Batch gather(std::span<const std::int64_t> indices, at::ScalarType /*type*/) const override {
    if (std::ranges::find(indices, 7) != indices.end()) throw UserError("folder/x.png ends too soon");
    return rows_of({indices, 0, 0});
  }
};

TEST_F(ReadAheadTest, a_sample_that_cannot_be_read_is_named_with_and_without_workers) {
  const BrokenSample broken;
  for (const std::int64_t workers : {0, 2}) {
    Loader loader([&](const ReadRequest& request) { return read_of(broken, request.samples, at::kDouble, 0); }, {});
    loader.add_workers(workers);
    const Numbers samples = numbers(5, 4);
    const std::array<ReadRequest, 1> request = {{{samples, 0, 0}}};
    loader.announce(request);
    const ReadAhead ahead(broken, *device_, nullptr, {&loader, 0}, 0);
    try {
      ahead.read(samples, at::kDouble);
      FAIL() << "it was read";
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), testing::StrEq("sample 7 of the training data: folder/x.png ends too soon"));
    }
  }
}

// Of one rank: reading takes `share` of steps of 100 ms with 4 micro-batches.
std::int64_t needed(double share, std::int64_t most) {
  WaitShare seen;
  for (int i = 0; i < 8; ++i) seen.add(0.1, {0.1 * share});
  return workers_needed(seen, 0, 4, most);
}

TEST(WorkersNeededTest, as_many_as_read_in_the_time_that_computing_takes) {
  EXPECT_EQ(needed(0.0, 16), 0);
  EXPECT_EQ(needed(0.019, 16), 0) << "less than 2 % of a step";
  EXPECT_EQ(needed(0.03, 16), 1);
  EXPECT_EQ(needed(0.5, 16), 1);
  EXPECT_EQ(needed(0.75, 16), 3);
  EXPECT_EQ(needed(0.76, 16), 4);
  EXPECT_EQ(needed(0.99, 16), 16);
  EXPECT_EQ(needed(1.0, 3), 3);
}

TEST(WorkersNeededTest, none_where_a_hand_over_costs_what_reading_does) {
  WaitShare seen;
  for (int i = 0; i < 8; ++i) seen.add(0.0005, {0.0, 0.0003});
  EXPECT_EQ(workers_needed(seen, 1, 2, 16), 0) << "0.15 ms a micro-batch";
  EXPECT_EQ(workers_needed(seen, 1, 1, 16), 2) << "0.3 ms of 0.5";
  EXPECT_EQ(workers_needed(seen, 0, 1, 16), 0);
}

TEST(WorkersNeededTest, what_any_rank_starts_is_said) {
  WaitShare seen;
  for (int i = 0; i < 8; ++i) seen.add(0.1, {0.0, 0.04, 0.02});
  const auto said = [&](const std::vector<RankWorkers>& ranks) { return started_workers_text(seen, ranks, 12); };
  EXPECT_EQ(said({{2, 0, 4}, {1, 0, 4}, {0, 0, 4}}), "");
  EXPECT_EQ(said({{2, 0, 4}, {1, 1, 4}, {0, 0, 4}}),
            "reading took 40 % of the steps until 12 on rank 1: 1 data worker reads ahead from here on");
  EXPECT_EQ(
      said({{2, 0, 4}, {3, 2, 4}, {1, 1, 4}}),
      "reading took up to 40 % of the steps until 12 on 2 of 3 ranks: up to 3 data workers of each read ahead from "
      "here on");
  WaitShare alone;
  alone.add(0.1, {0.05});
  EXPECT_EQ(started_workers_text(alone, std::vector<RankWorkers>{{2, 2, 4}}, 12),
            "reading took 50 % of the steps until 12: 2 data workers read ahead from here on");
}

}  // namespace
}  // namespace onebatch
